package metadata

// place appends n partitions to a topic's. Each gets a preferred primary among the candidates: the one with the fewest preferred
// partitions of this topic, then of all topics, then the lowest replica id (decisions 6). preferred counts those of all topics and is
// brought up to date. members are the nodes that hold the new partitions; they share the list.
//
// Partitions before the new ones keep their memory: an older catalog sees its own length of it. That is safe because entries are
// applied one after the other, each on the newest catalog, and because a list that was cut has no capacity left to append into.
func place(partitions []Partition, n uint32, candidates, members []uint8, preferred *[256]uint32, index, time uint64) []Partition {
	if n == 0 {
		return partitions
	}
	var own [256]uint32
	for i := range partitions {
		own[partitions[i].Preferred]++
	}
	first := uint32(len(partitions))
	for i := range n {
		best := candidates[0]
		for _, id := range candidates[1:] { // lowest first, so that the first of equals stays
			if own[id] < own[best] || own[id] == own[best] && preferred[id] < preferred[best] {
				best = id
			}
		}
		own[best]++
		preferred[best]++
		partitions = append(partitions, Partition{ID: first + i, CreatedAt: time, Created: index, Preferred: best, Members: members})
	}
	return partitions
}
