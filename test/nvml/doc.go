// Package nvml is a fake of NVIDIA's management library for machines that have no GPU: lib/ is a shared library in C that
// the real agent loads with dlopen, and this package compiles it and writes the file that holds one machine's state.
//
// The library behaves as NVML does where it matters to who calls it: profile indexes differ from profile ids, placements
// are those of the hardware, creating over an occupied place is refused, MIG mode takes effect at once on Hopper and
// after a reset on Ampere, and a fault may make it lie. boards.json is its own truth about boards, as NVIDIA publishes
// them: nothing of the product may come in here, since a mirror of its tables would prove nothing.
package nvml
