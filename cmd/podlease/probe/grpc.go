package probe

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// checkGRPC asks the health service that gRPC servers have (grpc.health.v1.Health/Check),
// without TLS, as the kubelet does.
//
// One call with one string in it and one number in its answer does not need the gRPC
// library, which would make this program half as large again: a copy of it is in each Pod,
// and starts at each probe.
func checkGRPC(ctx context.Context, address, service string) error {
	resp, err := callGRPC(ctx, address, service)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	message, err := io.ReadAll(io.LimitReader(resp.Body, maxBody)) // the trailers come after it
	if err != nil {
		return fmt.Errorf("read the answer of %s: %w", address, err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %s, which no gRPC server does", address, resp.Status)
	}
	if code := grpcHeader(resp, "Grpc-Status"); code != "0" {
		return fmt.Errorf("%s answered with gRPC code %q for service %q: %s", address, code, service, grpcHeader(resp, "Grpc-Message"))
	}
	status, err := parseHealth(message)
	if err != nil {
		return fmt.Errorf("answer of %s: %w", address, err)
	}
	if status != serving {
		return fmt.Errorf("%s says that service %q is not serving (status %d)", address, service, status)
	}
	return nil
}

func callGRPC(ctx context.Context, address, service string) (*http.Response, error) {
	url := "http://" + address + "/grpc.health.v1.Health/Check"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(healthRequest(service)))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("Te", "trailers")
	req.Header.Set("User-Agent", userAgent)
	transport := &http.Transport{Protocols: &http.Protocols{}}
	transport.Protocols.SetUnencryptedHTTP2(true) // and nothing else
	context.AfterFunc(ctx, transport.CloseIdleConnections)
	return transport.RoundTrip(req)
}

// grpcHeader is a header of the end of a call; a call that failed at once has no other.
func grpcHeader(resp *http.Response, name string) string {
	if value := resp.Trailer.Get(name); value != "" {
		return value
	}
	return resp.Header.Get(name)
}

// serving is HealthCheckResponse.ServingStatus.SERVING.
const serving = 1

// The wire format of protocol buffers for the messages' first fields: their number, and
// the kind of what follows.
const (
	fieldString = 1<<3 | 2
	fieldEnum   = 1 << 3
	frameHeader = 5 // one byte for compression, four for the length
)

// healthRequest is HealthCheckRequest{service} in a frame.
func healthRequest(service string) []byte {
	var message []byte
	if service != "" {
		message = binary.AppendUvarint([]byte{fieldString}, uint64(len(service)))
		message = append(message, service...)
	}
	frame := make([]byte, frameHeader, frameHeader+len(message))
	binary.BigEndian.PutUint32(frame[1:], uint32(len(message))) //nolint:gosec // it was a command's argument
	return append(frame, message...)
}

var errNoHealth = errors.New("not an answer of a gRPC health service")

// parseHealth reads HealthCheckResponse{status} from its frame. Zero is not written.
func parseHealth(frame []byte) (status uint64, err error) {
	if len(frame) < frameHeader || frame[0] != 0 || int(binary.BigEndian.Uint32(frame[1:])) != len(frame)-frameHeader {
		return 0, errNoHealth
	}
	message := frame[frameHeader:]
	if len(message) == 0 {
		return 0, nil
	}
	status, n := binary.Uvarint(message[1:])
	if message[0] != fieldEnum || n <= 0 {
		return 0, errNoHealth
	}
	return status, nil
}
