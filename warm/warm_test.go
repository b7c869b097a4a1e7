package main
import (
_ "github.com/hashicorp/terraform-plugin-testing/helper/resource"
)
