resource "gpufleet_node_pool" "inference" {
  name       = "inference"
  workload   = "Inference"
  node_class = gpufleet_node_class.h100_mig.name

  machines = [{ instance_types = ["p5.48xlarge"] }]

  # Two machines of 8 GPUs, and a third only while one of them is replaced.
  limits = { gpus = 16 }

  labels = { team = "search" }

  disruption = { consolidate_after = "1h" }
}

# The small machines first; 8-GPU machines only where those cannot be had or are too small. At most $20 an hour.
resource "gpufleet_node_pool" "research" {
  name       = "research"
  workload   = "Research"
  node_class = gpufleet_node_class.l4_shared.name

  machines = [
    { instance_types = ["g6.xlarge", "g6.2xlarge"] },
    { instance_types = ["g6.48xlarge"] },
  ]

  limits = { hourly_cost = "20", nodes = 10 }
}

# What a pod of the inference pool carries.
output "node_selector" {
  value = gpufleet_node_pool.inference.node_selector
}

output "tolerations" {
  value = gpufleet_node_pool.inference.tolerations
}
