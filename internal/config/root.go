package config

import (
	"crypto/rand"
	"fmt"
	"log/slog"
	"math/big"
)

// Root holds what was given for the root user. It counts only for the first
// start on an empty data directory.
type Root struct {
	Username string
	Password string
	// Default fills what is missing with iggy.
	Default bool
}

// Bounds of names and passwords in bytes.
const (
	minUsername, maxUsername = 3, 50
	minPassword, maxPassword = 3, 100
)

const defaultRoot = "iggy"

func rootFrom(env map[string]string, def bool, rep *Report) Root {
	r := Root{Username: env["IGGY_ROOT_USERNAME"], Password: env["IGGY_ROOT_PASSWORD"], Default: def}
	if def && r.Username != "" && r.Password != "" {
		rep.note(slog.LevelWarn, "--with-default-root-credentials ignored: IGGY_ROOT_USERNAME and IGGY_ROOT_PASSWORD are set")
	}
	return r
}

// Credentials of the root user to be made. generated = the password is random
// and has to be told once. In a cluster they must be given.
func (r Root) Credentials(cluster bool) (user, password string, generated bool, err error) {
	user, password = r.Username, r.Password
	if r.Default {
		if user == "" {
			user = defaultRoot
		}
		if password == "" {
			password = defaultRoot
		}
	}
	switch {
	case user == "" && password == "" && cluster:
		return "", "", false, &Problem{Key: "IGGY_ROOT_USERNAME, IGGY_ROOT_PASSWORD", Takes: "must be set for the first start of a cluster"}
	case user == "" && password == "":
		password, err = randomPassword()
		return defaultRoot, password, true, err
	case user == "":
		return "", "", false, &Problem{Key: "IGGY_ROOT_USERNAME", Takes: "must be set together with IGGY_ROOT_PASSWORD"}
	case password == "":
		return "", "", false, &Problem{Key: "IGGY_ROOT_PASSWORD", Takes: "must be set together with IGGY_ROOT_USERNAME"}
	case len(user) < minUsername || len(user) > maxUsername:
		return "", "", false, &Problem{Key: "IGGY_ROOT_USERNAME", Given: fmt.Sprintf("%d bytes", len(user)), Takes: fmt.Sprintf("takes %d to %d bytes", minUsername, maxUsername)}
	case len(password) < minPassword || len(password) > maxPassword:
		return "", "", false, &Problem{Key: "IGGY_ROOT_PASSWORD", Given: fmt.Sprintf("%d bytes", len(password)), Takes: fmt.Sprintf("takes %d to %d bytes", minPassword, maxPassword)}
	}
	return user, password, false, nil
}

// randomPassword of 20 to 39 characters.
func randomPassword() (string, error) {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	n, err := rand.Int(rand.Reader, big.NewInt(20))
	if err != nil {
		return "", fmt.Errorf("random password: %w", err)
	}
	out := make([]byte, 20+n.Int64())
	for i := range out {
		j, err := rand.Int(rand.Reader, big.NewInt(int64(len(letters))))
		if err != nil {
			return "", fmt.Errorf("random password: %w", err)
		}
		out[i] = letters[j.Int64()]
	}
	return string(out), nil
}
