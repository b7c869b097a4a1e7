// Package karpenter is where Karpenter core is met: the CloudProvider that core calls, the registration hook, the launch
// journal, repair policies and the wiring of the manager. Core's interfaces change at every minor release, so nothing
// else in the controller imports more of it than its API types.
package karpenter
