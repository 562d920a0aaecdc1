package e2e_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// status reads one answer and returns its status.
func status(conn net.Conn) (int, error) {
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }()
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, err
}
