package wire

// errorText explains the codes that a user can meet: what happened and, where it
// helps, what to do. Lower case, no full stop, so that it can be wrapped.
func errorText(c ErrorCode) string {
	switch c {
	case 0:
		return "no error"
	case ErrError:
		return "the server reported an error without details"
	case ErrInvalidConfiguration:
		return "the configuration is invalid"
	case ErrInvalidCommand:
		return "the server could not read the request, or does not know the command"
	case ErrInvalidFormat:
		return "the request or the reply was damaged or has an unexpected shape"
	case ErrFeatureUnavailable:
		return "the server knows this command but does not offer it"
	case ErrInvalidIdentifier:
		return "an identifier is invalid, or the partition is missing where one must be named"
	case ErrInvalidVersion:
		return "the version is not valid"
	case ErrDisconnected:
		return "the connection to the server was lost or the request timed out"
	case ErrCannotEstablishConnection:
		return "no server could be reached at the configured addresses"
	case ErrResourceNotFound:
		return "the user, token, stream, topic or partition does not exist"
	case ErrStaleClient:
		return "the session was ended because the client was silent for too long"
	case ErrTcpError:
		return "the TCP connection failed"
	case ErrQuicError:
		return "the QUIC connection failed"
	case ErrInvalidServerAddress:
		return "the server address is invalid; expected host:port"
	case ErrInvalidClientAddress:
		return "the client address is invalid"
	case ErrInvalidIpAddress:
		return "the IP address is invalid"
	case ErrHttpError:
		return "the HTTP request failed"
	case ErrInvalidApiUrl:
		return "the API URL is invalid"
	case ErrUnauthenticated:
		return "not signed in, or the session has ended"
	case ErrUnauthorized:
		return "permission denied"
	case ErrInvalidCredentials:
		return "wrong user name or password"
	case ErrInvalidUsername:
		return "a user name must have 3 to 50 bytes"
	case ErrInvalidPassword:
		return "a password must have 3 to 100 bytes"
	case ErrInvalidUserStatus:
		return "the user status must be active or inactive"
	case ErrUserAlreadyExists:
		return "a user with this name already exists"
	case ErrUserInactive:
		return "the user is inactive"
	case ErrCannotDeleteUser:
		return "the root user cannot be deleted"
	case ErrCannotChangePermissions:
		return "the permissions of the root user cannot be changed"
	case ErrInvalidPersonalAccessTokenName:
		return "a token name must have 3 to 30 bytes"
	case ErrPersonalAccessTokenAlreadyExists:
		return "a token with this name already exists"
	case ErrPersonalAccessTokensLimitReached:
		return "this user has as many tokens as are allowed"
	case ErrInvalidPersonalAccessToken:
		return "the access token is unknown or has expired"
	case ErrPersonalAccessTokenExpired:
		return "the access token has expired"
	case ErrUsersLimitReached:
		return "the number of users has reached its limit"
	case ErrInvalidPersonalAccessTokenExpiry:
		return "the expiry of the token lies in the past"
	case ErrTransientNotCommitted:
		return "the outcome is unknown: the request may or may not have been applied"
	case ErrTransientNotAccepted:
		return "the node did not accept the request; it was not applied and can be sent again"
	case ErrRequestAlreadyApplied:
		return "the request was already applied and its reply is no longer kept"
	case ErrNotConnected:
		return "the client is not connected"
	case ErrClientShutdown:
		return "the client has been shut down"
	case ErrInvalidTlsDomain:
		return "the TLS domain is invalid"
	case ErrInvalidTlsCertificatePath:
		return "the TLS certificate file cannot be read"
	case ErrInvalidTlsCertificate:
		return "the TLS certificate is invalid"
	case ErrFailedToAddCertificate:
		return "the TLS certificate could not be added"
	case ErrInvalidEncryptionKey:
		return "the encryption key is invalid"
	case ErrCannotEncryptData:
		return "the data could not be encrypted"
	case ErrCannotDecryptData:
		return "the data could not be decrypted; is the key the right one?"
	case ErrJwtMissing, ErrAccessTokenMissing:
		return "the access token is missing"
	case ErrInvalidAccessToken:
		return "the access token is invalid or has expired"
	case ErrInvalidSizeBytes:
		return "the size is invalid; expected for example \"128 MiB\""
	case ErrInvalidUtf8:
		return "the text is not valid UTF-8"
	case ErrInvalidNumberEncoding:
		return "a number in the reply is damaged"
	case ErrInvalidBooleanValue:
		return "the value is not true or false"
	case ErrInvalidNumberValue:
		return "the value is not a number in range"
	case ErrClientNotFound:
		return "the client does not exist"
	case ErrInvalidClientId:
		return "the client id is invalid"
	case ErrConnectionClosed:
		return "the connection was closed"
	case ErrCannotParseHeaderKind:
		return "the header kind is not known"
	case ErrHttpResponseError:
		return "the server answered with an HTTP error"
	case ErrInvalidHttpRequest:
		return "the HTTP request is invalid"
	case ErrInvalidJsonResponse:
		return "the reply is not the JSON that was expected"
	case ErrInvalidBytesResponse:
		return "the reply could not be read as bytes"
	case ErrEmptyResponse:
		return "the server closed the stream without an answer"
	case ErrCannotCreateEndpoint:
		return "the QUIC endpoint could not be created"
	case ErrCannotParseUrl:
		return "the URL is invalid"
	case ErrWebSocketError, ErrWebSocketConnectionError, ErrWebSocketCloseError, ErrWebSocketReceiveError,
		ErrWebSocketSendError, ErrCannotCloseWebSocketConnection:
		return "the WebSocket connection failed"
	case ErrStreamIdNotFound, ErrStreamNameNotFound:
		return "the stream does not exist"
	case ErrStreamNameAlreadyExists:
		return "a stream with this name already exists"
	case ErrInvalidStreamName:
		return "a stream name must have 1 to 255 bytes"
	case ErrInvalidStreamId:
		return "the stream id is invalid"
	case ErrInvalidTopicSize:
		return "max_topic_size must not be smaller than segment_size"
	case ErrTooManyStreams:
		return "the number of streams has reached its limit"
	case ErrTopicIdNotFound, ErrTopicNameNotFound:
		return "the topic does not exist"
	case ErrTopicNameAlreadyExists:
		return "a topic with this name already exists in the stream"
	case ErrInvalidTopicName:
		return "a topic name must have 1 to 255 bytes"
	case ErrTooManyPartitions:
		return "the partitions count must be between 1 and 1000"
	case ErrInvalidTopicId:
		return "the topic id is invalid"
	case ErrInvalidReplicationFactor:
		return "the replication factor is invalid"
	case ErrInvalidPartitionsCount:
		return "the topic does not have that many partitions"
	case ErrTooManyTopics:
		return "the number of topics in the stream has reached its limit"
	case ErrPartitionNotFound:
		return "the partition does not exist"
	case ErrNoPartitions:
		return "the topic has no partitions"
	case ErrTopicFull:
		return "the topic has reached its size limit"
	case ErrPartitionIdSpaceExhausted:
		return "the number of partitions in the topic has reached its limit"
	case ErrConsumerOffsetNotFound:
		return "no offset is stored for this consumer"
	case ErrTooManyConsumerOffsets:
		return "the partition keeps as many consumer offsets as are allowed"
	case ErrInvalidSegmentSize:
		return "the segment size is invalid"
	case ErrInvalidMessagesCount:
		return "a batch must hold at least one message"
	case ErrCannotAppendMessage:
		return "the messages could not be written; the disk may be full"
	case ErrCannotReadMessage:
		return "the messages could not be read: the log of the partition may be damaged, its server's log says more"
	case ErrTooBigUserHeaders:
		return "the headers of a message must not exceed 100,000 bytes"
	case ErrInvalidHeaderKey:
		return "a header key must have 1 to 255 bytes"
	case ErrInvalidHeaderValue:
		return "a header value must have 1 to 255 bytes that fit its kind"
	case ErrTooBigMessagePayload:
		return "a message must not exceed 64,000,000 bytes"
	case ErrTooManyMessages:
		return "the batch holds too many messages or bytes"
	case ErrEmptyMessagePayload, ErrInvalidMessagePayloadLength:
		return "a message must hold at least one byte"
	case ErrInvalidMessageChecksum:
		return "a message is damaged: its checksum does not match"
	case ErrInvalidKeyValueLength:
		return "a key must have 1 to 255 bytes"
	case ErrInvalidMessageTimestampDelta:
		return "the timestamps of one batch lie more than 71 minutes apart"
	case ErrInvalidBatchChecksum:
		return "a batch is damaged: its checksum does not match"
	case ErrInvalidHeaderKind:
		return "the value has another kind than asked for"
	case ErrUnsupportedOptionKey:
		return "the option is not known or cannot be changed here"
	case ErrInvalidOptionValue:
		return "the value of an option is invalid"
	case ErrOptionsBlockTooLarge:
		return "there are more than 1024 options or 100,000 bytes of them"
	case ErrCannotSendMessagesDueToClientDisconnection:
		return "the messages were not sent because the client is disconnected"
	case ErrBackgroundSendError:
		return "sending in the background failed"
	case ErrBackgroundSendTimeout:
		return "sending in the background took too long"
	case ErrBackgroundSendBufferFull, ErrBackgroundSendBufferOverflow:
		return "the send buffer is full"
	case ErrBackgroundWorkerDisconnected:
		return "the background sender has stopped"
	case ErrProducerSendFailed:
		return "the producer could not send some messages"
	case ErrProducerClosed:
		return "the producer has been closed"
	case ErrInvalidOffset:
		return "the offset lies behind the last message of the partition"
	case ErrInvalidReservedField:
		return "a reserved field is not zero"
	case ErrConsumerGroupIdNotFound, ErrConsumerGroupNameNotFound:
		return "the consumer group does not exist"
	case ErrInvalidConsumerGroupId:
		return "the consumer group id is invalid"
	case ErrConsumerGroupNameAlreadyExists:
		return "a consumer group with this name already exists in the topic"
	case ErrInvalidConsumerGroupName:
		return "a consumer group name must have 1 to 255 bytes"
	case ErrConsumerGroupMemberNotFound:
		return "the client is not a member of the consumer group"
	case ErrConsumerGroupPartitionNotOwned:
		return "another member of the consumer group owns the partition now"
	case ErrInvalidConnectionString:
		return "the connection string is invalid"
	case ErrSnapshotFileCompletionFailed:
		return "the snapshot could not be made or does not fit one reply"
	case ErrCannotWriteToFile:
		return "the server could not write to its disk; it may be full"
	case ErrTimestampOutOfRange:
		return "the timestamp is out of range"
	case ErrTaskTimeout:
		return "the operation took too long"
	case ErrIoError:
		return "an input or output operation failed"
	case ErrAlreadyAuthenticated:
		return "the client is already signed in"
	case ErrInvalidSession:
		return "the server gave an invalid session"
	case ErrIncompatibleProtocolVersion:
		return "the server does not speak this version of the protocol"
	}
	return ""
}
