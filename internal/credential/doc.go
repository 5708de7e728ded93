// Package credential proves who a caller is: passwords (Argon2id), personal access tokens (BLAKE3 of a random value) and the
// short-lived tickets that sign in a client's further links without a password hash (extensions.md, "Tickets").
//
// Everything here runs before a request is proposed or answers a login; nothing of it runs inside a replicated state machine. The
// clock and the randomness are the caller's.
//
// # Invariants
//
//   - A plain password or token never leaves this package except to the caller that handed it in or asked for it.
//   - Every password check costs one Argon2id run with the same parameters, whether the user exists or not, so that the time of an
//     answer does not tell which names exist.
//   - At most Config.Workers runs are active and at most Config.Queue callers wait, each no longer than Config.Wait. One run holds
//     19 MiB, so these bounds are a bound of memory too.
package credential
