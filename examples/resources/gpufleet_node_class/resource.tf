resource "gpufleet_node_class" "h100_mig" {
  name = "h100-mig"

  cloud = {
    aws = {
      subnets          = ["subnet-0a1b2c3d4e5f60001", "subnet-0a1b2c3d4e5f60002"]
      security_groups  = ["sg-0a1b2c3d4e5f60001"]
      instance_profile = "gpufleet-node"

      ami = {
        ssm_parameter = "/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/x86_64/nvidia/recommended/image_id"
      }

      root_volume = { size_gib = 200 }

      cluster = {
        name                  = aws_eks_cluster.this.name
        endpoint              = aws_eks_cluster.this.endpoint
        certificate_authority = aws_eks_cluster.this.certificate_authority[0].data
        service_cidr          = aws_eks_cluster.this.kubernetes_network_config[0].service_ipv4_cidr
      }
    }
  }

  sharing = {
    strategy = "MIG"
    layouts  = [gpufleet_mig_layout.small.name]
  }

  driver       = { min_version = "550" }
  verification = { timeout = "15m" }
}

# Four pods take turns on each GPU. Shares are called nvidia.com/gpu.shared, so that a pod that asks for nvidia.com/gpu
# does not get one by chance.
resource "gpufleet_node_class" "l4_shared" {
  name  = "l4-shared"
  cloud = gpufleet_node_class.h100_mig.cloud

  sharing = {
    strategy          = "TimeSlicing"
    replicas          = 4
    rename_by_default = true
  }
}
