package stack

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

// What every region holds when it starts (test/region documents it).
const (
	awsRegion       = "us-east-1"
	securityGroup   = "sg-0a1b2c3d4e5f60001"
	ami             = "ami-0a1b2c3d4e5f60001"
	instanceProfile = "gpufleet-node"
)

// subnets are one a zone.
func subnets() []string {
	return []string{"subnet-0a1b2c3d4e5f60001", "subnet-0a1b2c3d4e5f60002", "subnet-0a1b2c3d4e5f60003"}
}

// Cloud is where a GPUNodeClass gets the region's machines from, such that they join this cluster.
func (s *Stack) Cloud() v1alpha1.CloudSpec {
	return v1alpha1.CloudSpec{AWS: &v1alpha1.AWSCloud{
		Subnets: subnets(), SecurityGroups: []string{securityGroup}, InstanceProfile: instanceProfile, AMI: v1alpha1.AMISpec{ID: ami},
		Cluster: v1alpha1.ClusterSpec{
			Name: clusterName, Endpoint: s.Server, CertificateAuthority: s.certificateAuthority(), ServiceCIDR: serviceCIDR,
		},
	}}
}

// certificateAuthority is the cluster's, as base64 of PEM.
func (s *Stack) certificateAuthority() string {
	return base64.StdEncoding.EncodeToString(s.pki.pairs[idCA].certPEM)
}

// awsEnv points the AWS SDK to the region. The keys are good for nothing else.
func (s *Stack) awsEnv() []string {
	return []string{
		"AWS_ENDPOINT_URL=" + s.Endpoint,
		"AWS_REGION=" + awsRegion,
		"AWS_ACCESS_KEY_ID=AKIAGPUFLEETLOCAL000",
		"AWS_SECRET_ACCESS_KEY=local-stage-only",
		"AWS_EC2_METADATA_DISABLED=true",
	}
}

// Env is the environment for Terraform, kubectl and whatever else meets the stack, as KEY=VALUE. PATH begins with
// build/bin; the TF_VAR_ variables are those of examples/quickstart.
func (s *Stack) Env() []string {
	env := []string{
		"KUBECONFIG=" + s.Kubeconfig,
		"KUBE_CONFIG_PATH=" + s.Kubeconfig,
		"TF_CLI_CONFIG_FILE=" + s.terraformConfig(),
		"CHECKPOINT_DISABLE=1",
		"GPUFLEET_METRICS_URL=" + s.MetricsURL,
		"GPUFLEET_REGION_ADMIN=" + s.AdminURL,
		"TF_VAR_cluster_name=" + clusterName,
		"TF_VAR_cluster_endpoint=" + s.Server,
		"TF_VAR_cluster_certificate_authority=" + s.certificateAuthority(),
		"TF_VAR_service_cidr=" + serviceCIDR,
		`TF_VAR_subnets=["` + strings.Join(subnets(), `","`) + `"]`,
		fmt.Sprintf("TF_VAR_security_groups=[%q]", securityGroup),
		"TF_VAR_instance_profile=" + instanceProfile,
		"TF_VAR_ami=" + ami,
	}
	env = append(env, s.awsEnv()...)
	return append(env, "PATH="+filepath.Join(s.root, binDir)+string(os.PathListSeparator)+os.Getenv("PATH"))
}

// EnvFile is the file that a shell reads with ". FILE" to meet the stack whose directory is dir.
func EnvFile(dir string) string { return filepath.Join(dir, "env") }

// LogDir is where the stack whose directory is dir keeps its logs.
func LogDir(dir string) string { return filepath.Join(dir, "logs") }

func (s *Stack) terraformConfig() string { return filepath.Join(s.Dir, "terraformrc") }

// writeEnv writes the shell's file and Terraform's configuration, which names the built provider for both registries:
// OpenTofu looks under its own. With dev_overrides there is no terraform init.
func (s *Stack) writeEnv() error {
	bin := filepath.Join(s.root, binDir)
	config := fmt.Sprintf(`provider_installation {
  dev_overrides {
    "registry.terraform.io/gpufleet/gpufleet" = %[1]q
    "registry.opentofu.org/gpufleet/gpufleet" = %[1]q
  }
  direct {}
}
`, bin)
	if err := os.WriteFile(s.terraformConfig(), []byte(config), 0o644); err != nil {
		return fmt.Errorf("writing Terraform's configuration: %w", err)
	}
	if err := os.WriteFile(EnvFile(s.Dir), []byte(shellExports(s.Env(), bin)), 0o600); err != nil {
		return fmt.Errorf("writing the environment: %w", err)
	}
	return nil
}

// shellExports writes an environment in the shell's words. PATH is extended in the shell that reads it, not replaced.
func shellExports(env []string, bin string) string {
	var b strings.Builder
	for _, entry := range env {
		key, value, _ := strings.Cut(entry, "=")
		if key == "PATH" {
			fmt.Fprintf(&b, "export PATH=%s:\"$PATH\"\n", quote(bin))
			continue
		}
		fmt.Fprintf(&b, "export %s=%s\n", key, quote(value))
	}
	return b.String()
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
