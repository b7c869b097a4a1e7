resource "gpufleet_node_pool" "inference" {
  name       = "inference"
  workload   = "Inference"
  node_class = gpufleet_node_class.h100_mig.name

  machines = [{ instance_types = ["p5.48xlarge"] }]

  labels = { team = "search" }

  disruption = { consolidate_after = "1h" }
}

# What a pod of the pool carries.
output "node_selector" {
  value = gpufleet_node_pool.inference.node_selector
}

output "tolerations" {
  value = gpufleet_node_pool.inference.tolerations
}
