# Two pools: Inference on 8-GPU machines whose H100s are each cut into seven MIG instances, and Research on 4-GPU machines
# whose L4s take four pods each.

terraform {
  required_providers {
    gpufleet = {
      source = "gpufleet/gpufleet"
    }
  }
}

# The kubeconfig is the one that KUBE_CONFIG_PATH names.
provider "gpufleet" {}

variable "cluster_name" {
  description = "Name of the cluster that the nodes join."
  type        = string
}

variable "cluster_endpoint" {
  description = "URL of its API server."
  type        = string
}

variable "cluster_certificate_authority" {
  description = "Its certificate authority: base64 of PEM."
  type        = string
}

variable "service_cidr" {
  description = "Range of its Service addresses."
  type        = string
}

variable "subnets" {
  description = "Ids of the subnets to launch into, at most one a zone."
  type        = list(string)
}

variable "security_groups" {
  description = "Ids of the instances' security groups."
  type        = list(string)
}

variable "instance_profile" {
  description = "Name of the IAM instance profile whose role may join the cluster."
  type        = string
}

variable "ami" {
  description = "Id of the machine image."
  type        = string
}

variable "inference_gpus" {
  description = "Most physical GPUs that the inference pool may have; a p5.48xlarge has 8."
  type        = number
  default     = 8
}

# Where the machines of both classes come from.
locals {
  aws = {
    subnets          = var.subnets
    security_groups  = var.security_groups
    instance_profile = var.instance_profile
    ami              = { id = var.ami }

    cluster = {
      name                  = var.cluster_name
      endpoint              = var.cluster_endpoint
      certificate_authority = var.cluster_certificate_authority
      service_cidr          = var.service_cidr
    }
  }
}

resource "gpufleet_mig_layout" "small" {
  name      = "h100-7x1g10gb"
  gpu_model = "H100-80GB-SXM"

  devices = [{
    slices = [{ profile = "1g.10gb", count = 7 }]
  }]
}

resource "gpufleet_node_class" "h100_mig" {
  name  = "h100-mig"
  cloud = { aws = local.aws }

  sharing = {
    strategy = "MIG"
    layouts  = [gpufleet_mig_layout.small.name]
  }
}

resource "gpufleet_node_pool" "inference" {
  name       = "inference"
  workload   = "Inference"
  node_class = gpufleet_node_class.h100_mig.name

  machines = [{ instance_types = ["p5.48xlarge"] }]

  limits = { gpus = var.inference_gpus }
}

resource "gpufleet_node_class" "l4_shared" {
  name  = "l4-shared"
  cloud = { aws = local.aws }

  sharing = {
    strategy = "TimeSlicing"
    replicas = 4
  }
}

resource "gpufleet_node_pool" "research" {
  name       = "research"
  workload   = "Research"
  node_class = gpufleet_node_class.l4_shared.name

  machines = [{ instance_types = ["g6.12xlarge"] }]
}

output "node_selector" {
  description = "What a pod of the inference pool carries as nodeSelector."
  value       = gpufleet_node_pool.inference.node_selector
}

output "tolerations" {
  description = "What a pod of the inference pool carries as tolerations."
  value       = gpufleet_node_pool.inference.tolerations
}

output "resources" {
  description = "What one node of the inference pool offers, by instance type."
  value       = gpufleet_node_pool.inference.resources
}

output "research_node_selector" {
  description = "What a pod of the research pool carries as nodeSelector."
  value       = gpufleet_node_pool.research.node_selector
}

output "research_tolerations" {
  description = "What a pod of the research pool carries as tolerations."
  value       = gpufleet_node_pool.research.tolerations
}

output "research_resources" {
  description = "What one node of the research pool offers, by instance type."
  value       = gpufleet_node_pool.research.resources
}
