package recipes

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"sync"

	"github.com/podlease/podlease/pkg/fencing"
)

// Service keeps one document in a file and serves it over HTTP: GET for everybody, PUT
// for the newest holder of the lock. The file has the token too, so that a service that
// starts again still knows whom to refuse.
type Service struct {
	path  string
	guard fencing.Guard

	mu   sync.Mutex
	kept document
}

type document struct {
	Token uint64 `json:"token"`
	Value string `json:"value"`
}

// NewService serves the document of a file, which it makes with the first PUT.
func NewService(path string) (*Service, error) {
	s := &Service{path: path}
	data, err := os.ReadFile(path) //nolint:gosec // the caller's
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(data, &s.kept); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	s.guard.Remember(s.kept.Token)
	return s, nil
}

// Handler serves it. Only the route that writes is behind the guard.
func (s *Service) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /document", s.get)
	mux.Handle("PUT /document", s.guard.Handler(http.HandlerFunc(s.put)))
	return mux
}

func (s *Service) get(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = io.WriteString(w, s.kept.Value)
}

func (s *Service) put(w http.ResponseWriter, r *http.Request) {
	value, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if err := s.keep(document{Token: fencing.FromContext(r.Context()), Value: string(value)}); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// keep replaces the file in one step.
func (s *Service) keep(d document) error {
	data, err := json.Marshal(d)
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.path+".new", data, 0o600); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := os.Rename(s.path+".new", s.path); err != nil {
		return err
	}
	s.kept = d
	return nil
}
