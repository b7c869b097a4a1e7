package v1alpha1

// ValidateSharing applies the rules of a class's sharing alone.
func ValidateSharing(spec SharingSpec) []Violation {
	var v violations
	v.sharing("spec.sharing", spec)
	return v
}

func (v *violations) sharing(path string, s SharingSpec) {
	if s.Strategy != "" {
		oneOf(v, path+".strategy", s.Strategy, SharingStrategies)
	}
	v.mig(path, s)
	v.timeSlicing(path, s)
	v.count(path+".layouts", len(s.Layouts), 0, MaxLayouts)
	set(v, path+".layouts", s.Layouts)
	v.allLength(path+".layouts", s.Layouts, 1, MaxNameLength)
}

func (v *violations) mig(path string, s SharingSpec) {
	mig := s.Strategy == SharingMIG
	if !mig && len(s.Layouts) > 0 {
		v.add(path, MessageTwoStrategies)
	}
	if mig && len(s.Layouts) == 0 {
		v.add(path, MessageLayoutsMissing)
	}
	if !mig && s.MIGStrategy != "" {
		v.add(path, MessageMIGOnly)
	}
	if s.MIGStrategy != "" {
		oneOf(v, path+".migStrategy", s.MIGStrategy, MIGStrategies)
	}
}

func (v *violations) timeSlicing(path string, s SharingSpec) {
	sliced := s.Strategy == SharingTimeSlicing
	if !sliced && s.Replicas != nil {
		v.add(path, MessageReplicasElsewhere)
	}
	if sliced && s.Replicas == nil {
		v.add(path, MessageReplicasMissing)
	}
	if !sliced && (s.RenameByDefault || s.FailRequestsGreaterThanOne) {
		v.add(path, MessageTimeSlicingOnly)
	}
	if s.Replicas != nil {
		v.between(path+".replicas", int64(*s.Replicas), MinReplicas, MaxReplicas)
	}
}
