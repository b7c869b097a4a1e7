// Package e2e plays gpufleet's stories on a running stack with real programs: Terraform with the built provider, the
// controller, the region, the agent. A story is a list of steps; make demo tells it to a person, and the tests here run
// the same steps. What a step reports is read from the API server, the metrics endpoint and the region's books, never
// from the story itself.
package e2e
