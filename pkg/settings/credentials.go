package settings

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// Credentials are the user and the password for the nodes. Files are read at each
// Read, so a changed Secret counts from the next connection on.
type Credentials struct {
	Username     string
	UsernameFile string
	PasswordFile string
}

func (c *Credentials) addFlags(f *Flags) {
	f.String(&c.Username, "", Flag{Name: "username", Usage: "the user at the nodes; one in a node's URL wins", Allowed: printableAllowed(MaxName) + ", and no --username-file"})
	f.String(&c.UsernameFile, "", Flag{Name: "username-file", Usage: "a file with the user; read again when it changes", Allowed: fileAllowed})
	f.String(&c.PasswordFile, "", Flag{Name: "password-file", Usage: "a file with the password; read again when it changes", Allowed: fileAllowed})
}

const fileAllowed = "a file that can be read and is not empty"

func (c *Credentials) check(f *Flags) error {
	if c.Username != "" && (c.UsernameFile != "" || !printable(c.Username, MaxName)) {
		return f.Reject("username", c.Username, f.allowed["username"])
	}
	for flag, file := range map[string]string{"username-file": c.UsernameFile, "password-file": c.PasswordFile} {
		if !f.Given(flag) {
			continue
		}
		if _, err := readSecret(file); err != nil {
			return f.Reject(flag, file, fmt.Sprintf("%s: %v", fileAllowed, err))
		}
	}
	return nil
}

// Read returns the user and the password to use at a node now. Both may be empty.
func (c *Credentials) Read(node Node) (username, password string, err error) {
	username = c.Username
	if c.UsernameFile != "" {
		if username, err = readSecret(c.UsernameFile); err != nil {
			return "", "", fmt.Errorf("read the user for node %s: %w", node.Name, err)
		}
	}
	if node.User != "" {
		username = node.User
	}
	if c.PasswordFile == "" {
		return username, "", nil
	}
	if password, err = readSecret(c.PasswordFile); err != nil {
		return "", "", fmt.Errorf("read the password for node %s: %w", node.Name, err)
	}
	return username, password, nil
}

var errEmpty = errors.New("the file is empty")

// readSecret reads a file without the newline that editors leave at its end.
func readSecret(file string) (string, error) {
	data, err := os.ReadFile(file) //nolint:gosec // the path is a setting
	if err != nil {
		return "", err
	}
	text := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	if text == "" {
		return "", fmt.Errorf("%s: %w", file, errEmpty)
	}
	return text, nil
}
