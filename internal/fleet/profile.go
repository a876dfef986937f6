package fleet

// Profile describes one deployment: hardware, engine settings, and the fitted
// costs of the model. Parameters lists name, unit, meaning, source and
// plausible range of every number.
type Profile struct {
	// Name identifies the profile.
	Name string
	// Model is the served model, the value of label model_name.
	Model string
	// Source says where the numbers come from.
	Source string

	// Deployment.
	Replicas, TensorParallel                float64
	BlockTokens, TokenBudget, MaxSequences  float64
	GPUCacheTokens, CPUCacheGiB, KVKiBToken float64
	CopyGBps, CopyFixed, SnapshotInterval   float64

	// Engine step.
	StepBase, StepPerRequest, StepPerContext        float64
	PrefillPerToken, PrefillGrowth, OverlapExponent float64
	PollPerBlock, StepInflation                     float64
	StorePerBlock, StoreDrag                        float64

	// Lookup.
	LookupBase, LookupPerBlock, LookupSaturated float64
	LookupExponent, LookupShape, LookupCrowding float64

	// NVMe, shared by the node.
	WriteGiBps, WriteBacklogGiB              float64
	WriteShare                               float64
	ReadGiBps, ReadSaturatedGiBps, ReadShape float64

	// What is kept outside the GPU.
	CPURetained, CPUReported  float64
	SharedChance, SharedShare float64

	// Router and client.
	RouterCPUWeight, RouterLoadWeight, RouterWaitingWeight float64
	ClientOverhead                                         float64
}

// SlowStorage returns the profile with every operation of shared storage taking
// a factor longer: writes, reads, the lookup of a block, and the wait behind
// writes.
func (p Profile) SlowStorage(factor float64) Profile {
	p.WriteGiBps /= factor
	p.ReadGiBps /= factor
	p.ReadSaturatedGiBps /= factor
	p.LookupPerBlock *= factor
	p.LookupSaturated *= factor
	return p
}

// PrefillCost returns the profile with prefill cost per token multiplied by a
// factor: below 1 is a cheaper model.
func (p Profile) PrefillCost(factor float64) Profile {
	p.PrefillPerToken *= factor
	return p
}
