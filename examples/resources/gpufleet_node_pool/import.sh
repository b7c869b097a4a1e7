# A node pool is imported by its name.
terraform import gpufleet_node_pool.inference inference
