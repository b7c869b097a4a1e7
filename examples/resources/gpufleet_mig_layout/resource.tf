# Every GPU of a node is cut into seven instances of one compute slice and 10 GB.
resource "gpufleet_mig_layout" "small" {
  name      = "h100-7x1g10gb"
  gpu_model = "H100-80GB-SXM"

  devices = [{
    slices = [{ profile = "1g.10gb", count = 7 }]
  }]
}

# GPUs 0 to 3 are cut in two sizes, GPUs 4 to 7 stay whole.
resource "gpufleet_mig_layout" "mixed" {
  name      = "h100-mixed"
  gpu_model = "H100-80GB-SXM"

  devices = [{
    gpus = [0, 1, 2, 3]
    slices = [
      { profile = "3g.40gb", count = 1 },
      { profile = "1g.10gb", count = 4 },
    ]
  }]
}
