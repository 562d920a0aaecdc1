package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestNoAnswerFromTheSidecarMeansNotActive(t *testing.T) {
	for what, handler := range map[string]http.HandlerFunc{
		"no document":    func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"active":tr`)) },
		"a failing peer": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) },
	} {
		t.Run(what, func(t *testing.T) {
			server := httptest.NewServer(handler)
			defer server.Close()
			if got := ask(t.Context(), server.URL); got.Active || got.Reason == "" {
				t.Errorf("got %+v, want not active, with a reason", got)
			}
		})
	}
	if got := ask(t.Context(), "http://127.0.0.1:1"); got.Active || got.Reason == "" {
		t.Errorf("got %+v from nobody, want not active, with a reason", got)
	}
}
