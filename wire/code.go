package wire

// Code is a command code (commands §1; extensions for 9000 and above).
type Code uint32

// Command codes. CodeLoginUser and CodeLoginWithPersonalAccessToken are legacy
// and answered with EvictMalformedLogin.
const (
	CodePing                         Code = 1
	CodeGetStats                     Code = 10
	CodeGetSnapshot                  Code = 11
	CodeGetClusterMetadata           Code = 12
	CodeDescribeOptions              Code = 13
	CodeAttachConsumerSession        Code = 14
	CodeGetMe                        Code = 20
	CodeGetClient                    Code = 21
	CodeGetClients                   Code = 22
	CodeGetUser                      Code = 31
	CodeGetUsers                     Code = 32
	CodeCreateUser                   Code = 33
	CodeDeleteUser                   Code = 34
	CodeUpdateUser                   Code = 35
	CodeUpdatePermissions            Code = 36
	CodeChangePassword               Code = 37
	CodeLoginUser                    Code = 38
	CodeLogoutUser                   Code = 39
	CodeLoginRegister                Code = 40
	CodeGetPersonalAccessTokens      Code = 41
	CodeCreatePersonalAccessToken    Code = 42
	CodeDeletePersonalAccessToken    Code = 43
	CodeLoginWithPersonalAccessToken Code = 44
	CodeLoginRegisterWithPat         Code = 45
	CodePollMessages                 Code = 100
	CodeSendMessages                 Code = 101
	CodeFlushUnsavedBuffer           Code = 102
	CodeGetPollRouting               Code = 103
	CodePollMessagesOnPrimary        Code = 104
	CodeGetConsumerOffset            Code = 120
	CodeStoreConsumerOffset          Code = 121
	CodeDeleteConsumerOffset         Code = 122
	CodeGetConsumerOffsetRouting     Code = 123
	CodeGetStream                    Code = 200
	CodeGetStreams                   Code = 201
	CodeCreateStream                 Code = 202
	CodeDeleteStream                 Code = 203
	CodeUpdateStream                 Code = 204
	CodePurgeStream                  Code = 205
	CodeGetTopic                     Code = 300
	CodeGetTopics                    Code = 301
	CodeCreateTopic                  Code = 302
	CodeDeleteTopic                  Code = 303
	CodeUpdateTopic                  Code = 304
	CodePurgeTopic                   Code = 305
	CodeCreatePartitions             Code = 402
	CodeDeletePartitions             Code = 403
	CodeDeleteSegments               Code = 503
	CodeGetConsumerGroup             Code = 600
	CodeGetConsumerGroups            Code = 601
	CodeCreateConsumerGroup          Code = 602
	CodeDeleteConsumerGroup          Code = 603
	CodeJoinConsumerGroup            Code = 604
	CodeLeaveConsumerGroup           Code = 605
	CodeSyncConsumerGroup            Code = 606

	CodeCapabilities   Code = 9000
	CodeTicket         Code = 9001
	CodeTransferLeader Code = 9002
	CodeClusterStatus  Code = 9003
)

// String names the command as the protocol's table does.
func (c Code) String() string {
	if i, ok := c.Info(); ok {
		return i.Name
	}
	return "Code(" + utoa(uint64(c)) + ")"
}

// Info is the command's row of the table.
func (c Code) Info() (CommandInfo, bool) {
	if i := v0_11.index(c); i >= 0 {
		return v0_11.commands[i], true
	}
	return CommandInfo{}, false
}

// Extension reports whether the code lies in the range 9000..9999 that is ours.
func (c Code) Extension() bool { return c >= 9000 && c <= 9999 }

// OperationFor is the operation that a command travels under: its own, or
// OpNonReplicated for every other code, known or not (framing §1.7).
func OperationFor(c Code) Operation {
	if i := v0_11.index(c); i >= 0 {
		return v0_11.commands[i].Operation
	}
	return OpNonReplicated
}

// CodeFor is the command that an operation stands for. OpNonReplicated and the
// internal operations have none; OpRegister gives CodeLoginRegister.
func CodeFor(o Operation) (Code, bool) {
	c := v0_11.byOperation(o)
	return c, c != 0
}

// Commands lists the table of the current protocol version in order of codes.
func Commands() []CommandInfo {
	return append([]CommandInfo(nil), v0_11.commands...)
}
