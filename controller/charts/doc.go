// Package charts holds the Helm chart, and the tests that hold it to what it is about: the rights and CRDs of
// controller/config, the flags of the binaries, the list of reasons, the metrics that there are. What of it follows from
// lists in the code is written by generate. No product code comes in.
package charts
