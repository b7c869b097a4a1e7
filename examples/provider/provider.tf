terraform {
  required_providers {
    gpufleet = {
      source = "gpufleet/gpufleet"
    }
  }
}

# A kubeconfig. Left out, the environment variable KUBE_CONFIG_PATH names it.
provider "gpufleet" {
  config_path    = "~/.kube/config"
  config_context = "production"
}

# Or a cluster that the same configuration makes. Its address may be unknown at plan: nothing is connected to then.
provider "gpufleet" {
  alias                  = "eks"
  host                   = aws_eks_cluster.this.endpoint
  cluster_ca_certificate = base64decode(aws_eks_cluster.this.certificate_authority[0].data)

  exec = {
    api_version = "client.authentication.k8s.io/v1"
    command     = "aws"
    args        = ["eks", "get-token", "--cluster-name", aws_eks_cluster.this.name]
  }
}
