package walls_test

// The rules of the house, each as the imports that it must refuse and the rooms in which it must do so. The rooms are
// written out, one for each pattern of the rule: a pattern that matches nothing is silent.
var refused = []struct {
	rule    string
	rooms   []string
	imports []string
}{
	{"pure-rooms",
		[]string{"internal/gpu", "internal/machine", "internal/blueprint", "internal/verify", "internal/ledger", "internal/diagnose"},
		[]string{"k8s.io/client-go/kubernetes", "sigs.k8s.io/controller-runtime/pkg/client", "sigs.k8s.io/karpenter/pkg/apis/v1",
			"github.com/aws/aws-sdk-go-v2/service/ec2", "github.com/NVIDIA/go-nvml/pkg/nvml", "net/http"}},
	{"internal-knows-no-user",
		[]string{"internal/gpu", "internal/kube", "internal/somethingnew"},
		[]string{module + "/controller/nodepool", module + "/controller/karpenter", module + "/provider"}},
	{"client-only-in-kube",
		[]string{"internal/gpu", "internal/somethingnew"},
		[]string{"k8s.io/client-go/dynamic"}},
	{"kube-knows-no-terraform",
		[]string{"internal/kube"},
		[]string{"github.com/hashicorp/terraform-plugin-framework/diag", "sigs.k8s.io/controller-runtime/pkg/client"}},
	{"api-is-a-leaf",
		[]string{"controller/api/v1alpha1"},
		[]string{"sigs.k8s.io/controller-runtime/pkg/scheme", "k8s.io/client-go/rest", module + "/internal/gpu", "github.com/samber/lo"}},
	{"provider-sees-api-and-internal",
		[]string{".", "provider", "provider/nodepool"},
		[]string{module + "/controller/nodepool", "sigs.k8s.io/karpenter/pkg/apis/v1", "sigs.k8s.io/controller-runtime/pkg/client",
			"github.com/aws/aws-sdk-go-v2/config", "github.com/NVIDIA/go-nvml/pkg/nvml"}},
	{"controller-knows-no-terraform",
		[]string{"controller/nodepool", "controller/karpenter", "controller/cmd/controller", "controller/agent"},
		[]string{module + "/provider", "github.com/hashicorp/terraform-plugin-framework/resource", "github.com/hashicorp/terraform-plugin-go/tfprotov6"}},
	{"karpenter-in-one-room",
		[]string{"controller/nodepool", "controller/cmd/controller", "controller/cloud/aws", "controller/verification"},
		[]string{"sigs.k8s.io/karpenter/pkg/cloudprovider", "sigs.k8s.io/karpenter/pkg/operator"}},
	{"agent-is-small",
		[]string{"controller/agent", "controller/cmd/agent"},
		[]string{"sigs.k8s.io/karpenter/pkg/apis/v1", "sigs.k8s.io/controller-runtime/pkg/client", "github.com/aws/aws-sdk-go-v2/config"}},
	{"nvml-in-the-agent",
		[]string{"controller/karpenter", "controller/verification", "controller/cmd/controller"},
		[]string{"github.com/NVIDIA/go-nvml/pkg/nvml"}},
	{"cloud-behind-the-port",
		[]string{"controller/karpenter", "controller/nodeclass", "controller/cloud"},
		[]string{"github.com/aws/aws-sdk-go-v2/service/ec2", "github.com/aws/smithy-go"}},
	{"no-simulation-in-the-product",
		[]string{".", "provider", "controller/cloud/aws", "controller/agent", "internal/gpu"},
		[]string{module + "/test/region", module + "/test/nvml", module + "/test/stack", "testing", "net/http/httptest"}},
	{"no-product-in-the-simulation",
		[]string{"test/region", "test/region/cmd/deviceplugin", "test/nvml"},
		[]string{module + "/internal/gpu", module + "/controller/api/v1alpha1", module + "/provider"}},
	{"judged-from-outside",
		[]string{"test/bench", "test/soak", "test/soak/invariants"},
		[]string{module + "/controller/karpenter", module + "/internal/ledger", module + "/provider"}},
	{"invariants-start-nothing",
		[]string{"test/soak/invariants"},
		[]string{module + "/test/stack", module + "/test/e2e"}},
}

// permitted are doors that must stay open: a wall that refuses everything would pass the list above.
var permitted = []struct {
	file    string
	imports []string
}{
	{"internal/blueprint/a.go", []string{module + "/controller/api/v1alpha1", module + "/internal/gpu", "k8s.io/api/core/v1",
		"k8s.io/apimachinery/pkg/api/resource", "k8s.io/dynamic-resource-allocation/cel"}},
	{"internal/kube/a.go", []string{"k8s.io/client-go/dynamic", "net/http"}},
	{"internal/schemajson/a.go", []string{module + "/provider", "github.com/hashicorp/terraform-plugin-framework/providerserver"}},
	{"internal/gpu/a_test.go", []string{"testing", "pgregory.net/rapid"}},
	{"controller/api/v1alpha1/a.go", []string{"fmt", "k8s.io/api/core/v1", "k8s.io/apimachinery/pkg/apis/meta/v1"}},
	{"controller/api/v1alpha1/a_test.go", []string{"github.com/google/go-cmp/cmp", "sigs.k8s.io/yaml"}},
	{"controller/nodepool/a.go", []string{"sigs.k8s.io/karpenter/pkg/apis/v1", "sigs.k8s.io/controller-runtime/pkg/client",
		"github.com/awslabs/operatorpkg/status", module + "/internal/blueprint"}},
	{"controller/karpenter/a.go", []string{"sigs.k8s.io/karpenter/pkg/cloudprovider", module + "/controller/cloud"}},
	{"controller/agent/a.go", []string{"github.com/NVIDIA/go-nvml/pkg/nvml", "k8s.io/client-go/kubernetes"}},
	{"controller/cloud/aws/a.go", []string{"github.com/aws/aws-sdk-go-v2/service/ec2", module + "/controller/cloud"}},
	{"controller/cloud/aws/a_test.go", []string{module + "/test/region", "net/http/httptest"}},
	{"controller/cmd/controller/a.go", []string{"github.com/aws/aws-sdk-go-v2/config", module + "/controller/karpenter"}},
	{"main.go", []string{module + "/provider", "github.com/hashicorp/terraform-plugin-framework/providerserver"}},
	{"provider/a.go", []string{module + "/controller/api/v1alpha1", module + "/internal/kube", "github.com/hashicorp/terraform-plugin-framework/resource"}},
	{"provider/a_test.go", []string{module + "/test/stack", "github.com/hashicorp/terraform-plugin-testing/helper/resource"}},
	{"test/region/a.go", []string{module + "/test/nvml", "k8s.io/client-go/kubernetes"}},
	{"test/stack/a.go", []string{module + "/test/region", module + "/controller/api/v1alpha1"}},
	{"test/bench/a.go", []string{module + "/test/stack", module + "/controller/api/v1alpha1", module + "/internal/blueprint"}},
	{"test/soak/a.go", []string{module + "/test/stack", module + "/test/e2e", module + "/test/region", module + "/controller/api/v1alpha1",
		module + "/internal/blueprint", "sigs.k8s.io/karpenter/pkg/apis/v1"}},
	{"test/soak/invariants/a.go", []string{module + "/test/region"}},
}
