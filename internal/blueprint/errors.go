package blueprint

import (
	"fmt"

	"github.com/gpufleet/terraform-provider-gpufleet/controller/api/v1alpha1"
)

// Error is why there is no Blueprint. Plan, status and command line show the same words.
type Error struct {
	// Reason is v1alpha1.ReasonInvalidLayout, ReasonSKUMismatch, ReasonInvalidClass or ReasonClassNotFound.
	Reason string
	// Object is the object at fault, e.g. "MIGLayout h100-7x1g10gb", and Path the field of it, e.g.
	// spec.devices[0].slices[1].profile.
	Object, Path string
	// Message says what was asked, what was found and what is possible.
	Message string
}

func (e *Error) Error() string {
	switch {
	case e.Object != "" && e.Path != "":
		return e.Object + ": " + e.Path + ": " + e.Message
	case e.Object != "":
		return e.Object + ": " + e.Message
	case e.Path != "":
		return e.Path + ": " + e.Message
	}
	return e.Message
}

// MissingClass is the error of a pool whose node class does not exist.
func MissingClass(pool, class string) *Error {
	return &Error{
		Reason: v1alpha1.ReasonClassNotFound, Object: object(v1alpha1.KindGPUNodePool, pool), Path: "spec.nodeClassRef.name",
		Message: Missing("node class", class),
	}
}

// Missing says that an object which another refers to does not exist, in the words of plan and status both.
func Missing(noun, name string) string {
	return fmt.Sprintf("%s %q does not exist: declare it, or name one that does", noun, name)
}
