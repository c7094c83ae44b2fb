"""What the learned Beta sampler's policy is rewarded with."""
