// Package cluster runs the released clients, unmodified, against clusters of three nodes. It takes the clients' programs
// from the environment, which the script run sets; without them its tests skip.
package cluster
