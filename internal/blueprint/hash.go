package blueprint

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

// hashVersion says by which rule a hash was made. It changes with immutable below: a node with another version is
// stamped again and never drifts for that.
const hashVersion = "1"

// immutable is what cannot change on a running node. Prices, labels, taints and names are not here: they change in
// place or say nothing about the machine. Fields are only ever added with a new hashVersion, or left out where they are
// zero, so that every Blueprint that could be made before keeps its hash.
type immutable struct {
	GPUModel         string                   `json:"gpuModel"`
	GPUs             int32                    `json:"gpus"`
	Sharing          v1alpha1.SharingStrategy `json:"sharing"`
	Allocation       v1alpha1.Allocation      `json:"allocation"`
	Devices          []v1alpha1.DeviceLayout  `json:"devices,omitempty"`
	DriverMinVersion string                   `json:"driverMinVersion,omitempty"`
	// MIGStrategy is left out where it is Mixed, the only one that the first hashes knew.
	MIGStrategy                v1alpha1.MIGStrategy     `json:"migStrategy,omitempty"`
	Replicas                   int32                    `json:"replicas,omitempty"`
	RenameByDefault            bool                     `json:"renameByDefault,omitempty"`
	FailRequestsGreaterThanOne bool                     `json:"failRequestsGreaterThanOne,omitempty"`
	AMI                        *v1alpha1.AMISpec        `json:"ami,omitempty"`
	Cluster                    *v1alpha1.ClusterSpec    `json:"cluster,omitempty"`
	RootVolume                 *v1alpha1.RootVolumeSpec `json:"rootVolume,omitempty"`
}

// hash is short enough for a label and long enough never to collide within a fleet.
func hash(bp v1alpha1.Blueprint, class *v1alpha1.GPUNodeClass) (string, error) {
	facts := immutable{
		GPUModel: bp.GPU.Model, GPUs: bp.GPU.Count, Sharing: bp.Sharing, Allocation: bp.Allocation,
		DriverMinVersion: bp.DriverMinVersion,
		Replicas:         bp.Replicas, RenameByDefault: bp.RenameByDefault, FailRequestsGreaterThanOne: bp.FailRequestsGreaterThanOne,
	}
	if bp.MIGStrategy != v1alpha1.MIGMixed {
		facts.MIGStrategy = bp.MIGStrategy
	}
	if bp.Layout != nil {
		facts.Devices = bp.Layout.Devices
	}
	if aws := class.Spec.Cloud.AWS; aws != nil {
		facts.boot(*aws)
	}
	data, err := json.Marshal(facts)
	if err != nil {
		return "", fmt.Errorf("hash the Blueprint of pool %s on %s: %w", bp.Pool, bp.InstanceType, err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8]), nil
}

// boot adds the boot configuration, the CRD's defaults filled in: an object that the API server has defaulted and one
// that it has not seen are the same machine.
func (f *immutable) boot(aws v1alpha1.AWSCloud) {
	if aws.AMI.Family == "" {
		aws.AMI.Family = v1alpha1.AMIFamilyAL2023
	}
	if aws.RootVolume.SizeGiB == 0 {
		aws.RootVolume.SizeGiB = v1alpha1.DefaultRootVolumeGiB
	}
	f.AMI, f.Cluster, f.RootVolume = &aws.AMI, &aws.Cluster, &aws.RootVolume
}
