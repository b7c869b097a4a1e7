package blueprint

// Error is why there is no Blueprint. Plan, status and command line show the same words.
type Error struct {
	// Reason is v1alpha1.ReasonInvalidLayout, ReasonSKUMismatch or ReasonInvalidClass.
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
