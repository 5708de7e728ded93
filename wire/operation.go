package wire

// Operation is the operation byte of a request or reply (framing §1.6).
type Operation uint8

// Operations.
const (
	OpReserved      Operation = 0
	OpRegister      Operation = 1
	OpNonReplicated Operation = 2
	OpLogout        Operation = 3

	OpCreateTopicWithAssignments      Operation = 64
	OpCreatePartitionsWithAssignments Operation = 65
	OpRemoveConsumerGroupMember       Operation = 66
	OpCompleteConsumerGroupRevocation Operation = 67
	OpTruncatePartition               Operation = 68

	OpCreateStream              Operation = 128
	OpUpdateStream              Operation = 129
	OpDeleteStream              Operation = 130
	OpPurgeStream               Operation = 131
	OpCreateTopic               Operation = 132
	OpUpdateTopic               Operation = 133
	OpDeleteTopic               Operation = 134
	OpPurgeTopic                Operation = 135
	OpCreatePartitions          Operation = 136
	OpDeletePartitions          Operation = 137
	OpDeleteSegments            Operation = 138
	OpCreateConsumerGroup       Operation = 139
	OpDeleteConsumerGroup       Operation = 140
	OpCreateUser                Operation = 141
	OpUpdateUser                Operation = 142
	OpDeleteUser                Operation = 143
	OpChangePassword            Operation = 144
	OpUpdatePermissions         Operation = 145
	OpCreatePersonalAccessToken Operation = 146
	OpDeletePersonalAccessToken Operation = 147
	OpJoinConsumerGroup         Operation = 148
	OpLeaveConsumerGroup        Operation = 149

	OpSendMessages         Operation = 160
	OpStoreConsumerOffset  Operation = 161
	OpDeleteConsumerOffset Operation = 162
)

// Known reports whether o is one of the protocol's values other than Reserved.
func (o Operation) Known() bool {
	return o >= OpRegister && o <= OpLogout ||
		o >= OpCreateTopicWithAssignments && o <= OpTruncatePartition ||
		o >= OpCreateStream && o <= OpLeaveConsumerGroup ||
		o >= OpSendMessages && o <= OpDeleteConsumerOffset
}

// Framed reports whether a reply of this operation starts with a result section
// when its status is 0. A register reply does so only when its body is not empty.
func (o Operation) Framed() bool {
	switch {
	case o == OpRegister, o == OpStoreConsumerOffset, o == OpDeleteConsumerOffset:
		return true
	case o == OpDeleteSegments:
		return false
	}
	return o.Metadata()
}

// Metadata reports whether o belongs to the metadata group: 64 to 149, without
// DeleteSegments, which is resolved into TruncatePartition first.
func (o Operation) Metadata() bool {
	return o != OpDeleteSegments &&
		(o >= OpCreateTopicWithAssignments && o <= OpTruncatePartition || o >= OpCreateStream && o <= OpLeaveConsumerGroup)
}

// Watermark reports whether the commit field of a reply with this operation
// counts for the client's metadata watermark (framing §6.1).
func (o Operation) Watermark() bool {
	return o == OpRegister || o == OpLogout || o >= OpCreateTopicWithAssignments && o <= OpLeaveConsumerGroup
}

// Partition reports whether o is replicated in a partition's log.
func (o Operation) Partition() bool { return o >= OpSendMessages && o <= OpDeleteConsumerOffset }

// Internal reports whether o lies in 64..127: never sent by a client and refused
// by a server with EvictInvalidRequestOperation, known value or not.
func (o Operation) Internal() bool { return o >= 64 && o <= 127 }

// Stamped reports whether a client puts the BodyStamp into the header of a
// request with this operation (framing §2).
func (o Operation) Stamped() bool {
	return o == OpRegister || o == OpLogout || o == OpDeleteSegments || o.Metadata()
}

// Replicated reports whether requests of this operation consume a request
// number: everything but Register and NonReplicated (framing §5).
func (o Operation) Replicated() bool { return o.Known() && o > OpNonReplicated }

// String names the operation.
func (o Operation) String() string {
	switch o {
	case OpReserved:
		return "Reserved"
	case OpRegister:
		return "Register"
	case OpNonReplicated:
		return "NonReplicated"
	case OpLogout:
		return "Logout"
	case OpCreateTopicWithAssignments:
		return "CreateTopicWithAssignments"
	case OpCreatePartitionsWithAssignments:
		return "CreatePartitionsWithAssignments"
	case OpRemoveConsumerGroupMember:
		return "RemoveConsumerGroupMember"
	case OpCompleteConsumerGroupRevocation:
		return "CompleteConsumerGroupRevocation"
	case OpTruncatePartition:
		return "TruncatePartition"
	}
	if c, ok := CodeFor(o); ok {
		return c.String()
	}
	return "Operation(" + utoa(uint64(o)) + ")"
}
