package wire

// Auth is what a command needs of the connection (commands §1, column Auth).
type Auth uint8

// Authorisation classes.
const (
	// AuthNone: works without a session.
	AuthNone Auth = iota
	// AuthSession: needs a session.
	AuthSession
	// AuthPermission: needs a session and a permission (commands §5).
	AuthPermission
)

// Replication is where a command is replicated (commands §1, column Repl).
type Replication uint8

// Replication classes.
const (
	// ReplicationNone: a read.
	ReplicationNone Replication = iota
	// ReplicationMetadata: in the metadata log.
	ReplicationMetadata
	// ReplicationPartition: in the partition's log.
	ReplicationPartition
	// ReplicationSession: a session operation in the metadata log.
	ReplicationSession
)

// CommandInfo is a row of the command table.
type CommandInfo struct {
	Code        Code
	Name        string // as in the protocol's table
	Registry    string // the registry name, for logs and metrics
	Operation   Operation
	Auth        Auth
	Self        bool // the permission is not needed for the caller's own account
	Replication Replication
	Legacy      bool // known only to be refused
	New         func() Request
}

// protocol is the command table of one version. A second version stands beside
// the first as another value of this type; whoever negotiated a version at login
// then asks that value instead of the package's functions.
type protocol struct {
	version  Version
	commands []CommandInfo // sorted by code
	codes    [256]Code     // by operation; 0 = none
}

// index finds the row of a code, or -1.
func (p *protocol) index(c Code) int {
	lo, hi := 0, len(p.commands)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if p.commands[mid].Code < c {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo < len(p.commands) && p.commands[lo].Code == c {
		return lo
	}
	return -1
}

func (p *protocol) byOperation(o Operation) Code { return p.codes[o] }

// NewRequest makes an empty request of a command, to decode into.
func NewRequest(c Code) (Request, bool) {
	i := v0_11.index(c)
	if i < 0 {
		return nil, false
	}
	return v0_11.commands[i].New(), true
}

// v0_11 is the table of protocol 0.11.0 with our extensions. It is never written.
var v0_11 = protocol{version: CurrentVersion, commands: []CommandInfo{
	{Code: CodePing, Name: "Ping", Registry: "ping", Operation: OpNonReplicated, Auth: AuthNone, Replication: ReplicationNone, New: func() Request { return new(Ping) }},
	{Code: CodeGetStats, Name: "GetStats", Registry: "stats", Operation: OpNonReplicated, Auth: AuthPermission, Replication: ReplicationNone, New: func() Request { return new(GetStats) }},
	{Code: CodeGetSnapshot, Name: "GetSnapshot", Registry: "snapshot", Operation: OpNonReplicated, Auth: AuthPermission, Replication: ReplicationNone, New: func() Request { return new(GetSnapshot) }},
	{Code: CodeGetClusterMetadata, Name: "GetClusterMetadata", Registry: "cluster.metadata", Operation: OpNonReplicated, Auth: AuthSession, Replication: ReplicationNone, New: func() Request { return new(GetClusterMetadata) }},
	{Code: CodeDescribeOptions, Name: "DescribeOptions", Registry: "options.describe", Operation: OpNonReplicated, Auth: AuthSession, Replication: ReplicationNone, New: func() Request { return new(DescribeOptions) }},
	{Code: CodeAttachConsumerSession, Name: "AttachConsumerSession", Registry: "consumer_session.attach", Operation: OpNonReplicated, Auth: AuthSession, Replication: ReplicationNone, New: func() Request { return new(AttachConsumerSession) }},
	{Code: CodeGetMe, Name: "GetMe", Registry: "me", Operation: OpNonReplicated, Auth: AuthSession, Replication: ReplicationNone, New: func() Request { return new(GetMe) }},
	{Code: CodeGetClient, Name: "GetClient", Registry: "client.get", Operation: OpNonReplicated, Auth: AuthPermission, Replication: ReplicationNone, New: func() Request { return new(GetClient) }},
	{Code: CodeGetClients, Name: "GetClients", Registry: "client.list", Operation: OpNonReplicated, Auth: AuthPermission, Replication: ReplicationNone, New: func() Request { return new(GetClients) }},
	{Code: CodeGetUser, Name: "GetUser", Registry: "user.get", Operation: OpNonReplicated, Auth: AuthPermission, Replication: ReplicationNone, Self: true, New: func() Request { return new(GetUser) }},
	{Code: CodeGetUsers, Name: "GetUsers", Registry: "user.list", Operation: OpNonReplicated, Auth: AuthPermission, Replication: ReplicationNone, New: func() Request { return new(GetUsers) }},
	{Code: CodeCreateUser, Name: "CreateUser", Registry: "user.create", Operation: OpCreateUser, Auth: AuthPermission, Replication: ReplicationMetadata, New: func() Request { return new(CreateUser) }},
	{Code: CodeDeleteUser, Name: "DeleteUser", Registry: "user.delete", Operation: OpDeleteUser, Auth: AuthPermission, Replication: ReplicationMetadata, New: func() Request { return new(DeleteUser) }},
	{Code: CodeUpdateUser, Name: "UpdateUser", Registry: "user.update", Operation: OpUpdateUser, Auth: AuthPermission, Replication: ReplicationMetadata, New: func() Request { return new(UpdateUser) }},
	{Code: CodeUpdatePermissions, Name: "UpdatePermissions", Registry: "user.permissions", Operation: OpUpdatePermissions, Auth: AuthPermission, Replication: ReplicationMetadata, New: func() Request { return new(UpdatePermissions) }},
	{Code: CodeChangePassword, Name: "ChangePassword", Registry: "user.password", Operation: OpChangePassword, Auth: AuthPermission, Replication: ReplicationMetadata, Self: true, New: func() Request { return new(ChangePassword) }},
	{Code: CodeLoginUser, Name: "LoginUser", Registry: "user.login", Operation: OpNonReplicated, Auth: AuthNone, Replication: ReplicationNone, Legacy: true, New: func() Request { return new(LoginUser) }},
	{Code: CodeLogoutUser, Name: "LogoutUser", Registry: "user.logout", Operation: OpLogout, Auth: AuthSession, Replication: ReplicationSession, New: func() Request { return new(LogoutUser) }},
	{Code: CodeLoginRegister, Name: "LoginRegister", Registry: "user.login_register", Operation: OpRegister, Auth: AuthNone, Replication: ReplicationSession, New: func() Request { return new(LoginRegister) }},
	{Code: CodeGetPersonalAccessTokens, Name: "GetPersonalAccessTokens", Registry: "personal_access_token.list", Operation: OpNonReplicated, Auth: AuthSession, Replication: ReplicationNone, New: func() Request { return new(GetPersonalAccessTokens) }},
	{Code: CodeCreatePersonalAccessToken, Name: "CreatePersonalAccessToken", Registry: "personal_access_token.create", Operation: OpCreatePersonalAccessToken, Auth: AuthSession, Replication: ReplicationMetadata, New: func() Request { return new(CreatePersonalAccessToken) }},
	{Code: CodeDeletePersonalAccessToken, Name: "DeletePersonalAccessToken", Registry: "personal_access_token.delete", Operation: OpDeletePersonalAccessToken, Auth: AuthSession, Replication: ReplicationMetadata, New: func() Request { return new(DeletePersonalAccessToken) }},
	{Code: CodeLoginWithPersonalAccessToken, Name: "LoginWithPersonalAccessToken", Registry: "personal_access_token.login", Operation: OpNonReplicated, Auth: AuthNone, Replication: ReplicationNone, Legacy: true, New: func() Request { return new(LoginWithPersonalAccessToken) }},
	{Code: CodeLoginRegisterWithPat, Name: "LoginRegisterWithPat", Registry: "user.login_register_with_pat", Operation: OpRegister, Auth: AuthNone, Replication: ReplicationSession, New: func() Request { return new(LoginRegisterWithPat) }},
	{Code: CodePollMessages, Name: "PollMessages", Registry: "message.poll", Operation: OpNonReplicated, Auth: AuthPermission, Replication: ReplicationNone, New: func() Request { return new(PollMessages) }},
	{Code: CodeSendMessages, Name: "SendMessages", Registry: "message.send", Operation: OpSendMessages, Auth: AuthPermission, Replication: ReplicationPartition, New: func() Request { return new(SendMessages) }},
	{Code: CodeFlushUnsavedBuffer, Name: "FlushUnsavedBuffer", Registry: "message.flush_unsaved_buffer", Operation: OpNonReplicated, Auth: AuthSession, Replication: ReplicationNone, New: func() Request { return new(FlushUnsavedBuffer) }},
	{Code: CodeGetPollRouting, Name: "GetPollRouting", Registry: "message.poll_routing", Operation: OpNonReplicated, Auth: AuthPermission, Replication: ReplicationNone, New: func() Request { return new(GetPollRouting) }},
	{Code: CodePollMessagesOnPrimary, Name: "PollMessagesOnPrimary", Registry: "message.poll_primary", Operation: OpNonReplicated, Auth: AuthPermission, Replication: ReplicationNone, New: func() Request { return new(PollMessagesOnPrimary) }},
	{Code: CodeGetConsumerOffset, Name: "GetConsumerOffset", Registry: "consumer_offset.get", Operation: OpNonReplicated, Auth: AuthPermission, Replication: ReplicationNone, New: func() Request { return new(GetConsumerOffset) }},
	{Code: CodeStoreConsumerOffset, Name: "StoreConsumerOffset", Registry: "consumer_offset.store", Operation: OpStoreConsumerOffset, Auth: AuthPermission, Replication: ReplicationPartition, New: func() Request { return new(StoreConsumerOffset) }},
	{Code: CodeDeleteConsumerOffset, Name: "DeleteConsumerOffset", Registry: "consumer_offset.delete", Operation: OpDeleteConsumerOffset, Auth: AuthPermission, Replication: ReplicationPartition, New: func() Request { return new(DeleteConsumerOffset) }},
	{Code: CodeGetConsumerOffsetRouting, Name: "GetConsumerOffsetRouting", Registry: "consumer_offset.routing", Operation: OpNonReplicated, Auth: AuthPermission, Replication: ReplicationNone, New: func() Request { return new(GetConsumerOffsetRouting) }},
	{Code: CodeGetStream, Name: "GetStream", Registry: "stream.get", Operation: OpNonReplicated, Auth: AuthPermission, Replication: ReplicationNone, New: func() Request { return new(GetStream) }},
	{Code: CodeGetStreams, Name: "GetStreams", Registry: "stream.list", Operation: OpNonReplicated, Auth: AuthPermission, Replication: ReplicationNone, New: func() Request { return new(GetStreams) }},
	{Code: CodeCreateStream, Name: "CreateStream", Registry: "stream.create", Operation: OpCreateStream, Auth: AuthPermission, Replication: ReplicationMetadata, New: func() Request { return new(CreateStream) }},
	{Code: CodeDeleteStream, Name: "DeleteStream", Registry: "stream.delete", Operation: OpDeleteStream, Auth: AuthPermission, Replication: ReplicationMetadata, New: func() Request { return new(DeleteStream) }},
	{Code: CodeUpdateStream, Name: "UpdateStream", Registry: "stream.update", Operation: OpUpdateStream, Auth: AuthPermission, Replication: ReplicationMetadata, New: func() Request { return new(UpdateStream) }},
	{Code: CodePurgeStream, Name: "PurgeStream", Registry: "stream.purge", Operation: OpPurgeStream, Auth: AuthPermission, Replication: ReplicationMetadata, New: func() Request { return new(PurgeStream) }},
	{Code: CodeGetTopic, Name: "GetTopic", Registry: "topic.get", Operation: OpNonReplicated, Auth: AuthPermission, Replication: ReplicationNone, New: func() Request { return new(GetTopic) }},
	{Code: CodeGetTopics, Name: "GetTopics", Registry: "topic.list", Operation: OpNonReplicated, Auth: AuthPermission, Replication: ReplicationNone, New: func() Request { return new(GetTopics) }},
	{Code: CodeCreateTopic, Name: "CreateTopic", Registry: "topic.create", Operation: OpCreateTopic, Auth: AuthPermission, Replication: ReplicationMetadata, New: func() Request { return new(CreateTopic) }},
	{Code: CodeDeleteTopic, Name: "DeleteTopic", Registry: "topic.delete", Operation: OpDeleteTopic, Auth: AuthPermission, Replication: ReplicationMetadata, New: func() Request { return new(DeleteTopic) }},
	{Code: CodeUpdateTopic, Name: "UpdateTopic", Registry: "topic.update", Operation: OpUpdateTopic, Auth: AuthPermission, Replication: ReplicationMetadata, New: func() Request { return new(UpdateTopic) }},
	{Code: CodePurgeTopic, Name: "PurgeTopic", Registry: "topic.purge", Operation: OpPurgeTopic, Auth: AuthPermission, Replication: ReplicationMetadata, New: func() Request { return new(PurgeTopic) }},
	{Code: CodeCreatePartitions, Name: "CreatePartitions", Registry: "partition.create", Operation: OpCreatePartitions, Auth: AuthPermission, Replication: ReplicationMetadata, New: func() Request { return new(CreatePartitions) }},
	{Code: CodeDeletePartitions, Name: "DeletePartitions", Registry: "partition.delete", Operation: OpDeletePartitions, Auth: AuthPermission, Replication: ReplicationMetadata, New: func() Request { return new(DeletePartitions) }},
	{Code: CodeDeleteSegments, Name: "DeleteSegments", Registry: "segment.delete", Operation: OpDeleteSegments, Auth: AuthPermission, Replication: ReplicationMetadata, New: func() Request { return new(DeleteSegments) }},
	{Code: CodeGetConsumerGroup, Name: "GetConsumerGroup", Registry: "consumer_group.get", Operation: OpNonReplicated, Auth: AuthPermission, Replication: ReplicationNone, New: func() Request { return new(GetConsumerGroup) }},
	{Code: CodeGetConsumerGroups, Name: "GetConsumerGroups", Registry: "consumer_group.list", Operation: OpNonReplicated, Auth: AuthPermission, Replication: ReplicationNone, New: func() Request { return new(GetConsumerGroups) }},
	{Code: CodeCreateConsumerGroup, Name: "CreateConsumerGroup", Registry: "consumer_group.create", Operation: OpCreateConsumerGroup, Auth: AuthPermission, Replication: ReplicationMetadata, New: func() Request { return new(CreateConsumerGroup) }},
	{Code: CodeDeleteConsumerGroup, Name: "DeleteConsumerGroup", Registry: "consumer_group.delete", Operation: OpDeleteConsumerGroup, Auth: AuthPermission, Replication: ReplicationMetadata, New: func() Request { return new(DeleteConsumerGroup) }},
	{Code: CodeJoinConsumerGroup, Name: "JoinConsumerGroup", Registry: "consumer_group.join", Operation: OpJoinConsumerGroup, Auth: AuthPermission, Replication: ReplicationMetadata, New: func() Request { return new(JoinConsumerGroup) }},
	{Code: CodeLeaveConsumerGroup, Name: "LeaveConsumerGroup", Registry: "consumer_group.leave", Operation: OpLeaveConsumerGroup, Auth: AuthPermission, Replication: ReplicationMetadata, New: func() Request { return new(LeaveConsumerGroup) }},
	{Code: CodeSyncConsumerGroup, Name: "SyncConsumerGroup", Registry: "consumer_group.sync", Operation: OpNonReplicated, Auth: AuthSession, Replication: ReplicationNone, New: func() Request { return new(SyncConsumerGroup) }},
	{Code: CodeCapabilities, Name: "Capabilities", Registry: "whippet.capabilities", Operation: OpNonReplicated, Auth: AuthSession, Replication: ReplicationNone, New: func() Request { return new(Capabilities) }},
	{Code: CodeTicket, Name: "Ticket", Registry: "whippet.ticket", Operation: OpNonReplicated, Auth: AuthSession, Replication: ReplicationNone, New: func() Request { return new(Ticket) }},
	{Code: CodeTransferLeader, Name: "TransferLeader", Registry: "whippet.leader.transfer", Operation: OpNonReplicated, Auth: AuthPermission, Replication: ReplicationNone, New: func() Request { return new(TransferLeader) }},
	{Code: CodeClusterStatus, Name: "ClusterStatus", Registry: "whippet.cluster.status", Operation: OpNonReplicated, Auth: AuthPermission, Replication: ReplicationNone, New: func() Request { return new(ClusterStatus) }},
}, codes: [256]Code{
	OpCreateUser:                CodeCreateUser,
	OpDeleteUser:                CodeDeleteUser,
	OpUpdateUser:                CodeUpdateUser,
	OpUpdatePermissions:         CodeUpdatePermissions,
	OpChangePassword:            CodeChangePassword,
	OpLogout:                    CodeLogoutUser,
	OpRegister:                  CodeLoginRegister,
	OpCreatePersonalAccessToken: CodeCreatePersonalAccessToken,
	OpDeletePersonalAccessToken: CodeDeletePersonalAccessToken,
	OpSendMessages:              CodeSendMessages,
	OpStoreConsumerOffset:       CodeStoreConsumerOffset,
	OpDeleteConsumerOffset:      CodeDeleteConsumerOffset,
	OpCreateStream:              CodeCreateStream,
	OpDeleteStream:              CodeDeleteStream,
	OpUpdateStream:              CodeUpdateStream,
	OpPurgeStream:               CodePurgeStream,
	OpCreateTopic:               CodeCreateTopic,
	OpDeleteTopic:               CodeDeleteTopic,
	OpUpdateTopic:               CodeUpdateTopic,
	OpPurgeTopic:                CodePurgeTopic,
	OpCreatePartitions:          CodeCreatePartitions,
	OpDeletePartitions:          CodeDeletePartitions,
	OpDeleteSegments:            CodeDeleteSegments,
	OpCreateConsumerGroup:       CodeCreateConsumerGroup,
	OpDeleteConsumerGroup:       CodeDeleteConsumerGroup,
	OpJoinConsumerGroup:         CodeJoinConsumerGroup,
	OpLeaveConsumerGroup:        CodeLeaveConsumerGroup,
}}
