package v1alpha1

// limits checks one pool's. Whether anything fits into them is for the ledger to say.
func (v *violations) limits(path string, l LimitsSpec) {
	if l.GPUs == nil && l.Nodes == nil && l.HourlyCost == "" {
		v.add(path, MessageLimitsMissing)
	}
	if l.GPUs != nil {
		v.between(path+".gpus", *l.GPUs, 0, MaxLimit)
	}
	if l.Nodes != nil {
		v.between(path+".nodes", *l.Nodes, 0, MaxLimit)
	}
	if l.HourlyCost != "" {
		v.matches(path+".hourlyCost", l.HourlyCost, hourlyCostPattern())
	}
	if l.Surge != nil {
		v.between(path+".surge", int64(*l.Surge), MinSurge, MaxSurge)
	}
}
