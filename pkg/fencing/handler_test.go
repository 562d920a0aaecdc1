package fencing_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/podlease/podlease/pkg/fencing"
)

// send sends a write with the given values of the header and returns the answer.
func send(h http.Handler, values ...string) *httptest.ResponseRecorder {
	request := httptest.NewRequest(http.MethodPut, "/jobs/1", http.NoBody)
	for _, v := range values {
		request.Header.Add(fencing.Header, v)
	}
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, request)
	return answer
}

func TestHandlerAnswers(t *testing.T) {
	for name, test := range map[string]struct {
		values []string
		status int
		says   string
	}{
		"missing":           {nil, http.StatusBadRequest, "header Podlease-Fencing-Token: there are 0 of them"},
		"twice there":       {[]string{"9", "9"}, http.StatusBadRequest, "there are 2 of them"},
		"empty":             {[]string{""}, http.StatusBadRequest, `"" is no fencing token`},
		"no number":         {[]string{"nine"}, http.StatusBadRequest, `"nine" is no fencing token, want an integer from 1 to 9007199254740991`},
		"negative":          {[]string{"-9"}, http.StatusBadRequest, `"-9" is no fencing token`},
		"zero":              {[]string{"0"}, http.StatusBadRequest, "fencing token 0"},
		"too large for one": {[]string{"9007199254740992"}, http.StatusBadRequest, "want 1 to 9007199254740991"},
		"old":               {[]string{"7"}, http.StatusPreconditionFailed, "fencing token 7 is older than 8"},
		"the same":          {[]string{"8"}, http.StatusNoContent, ""},
		"newer":             {[]string{"9"}, http.StatusNoContent, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var guard fencing.Guard
			guard.Remember(8)
			served := false
			answer := send(guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				served = true
				if token := fencing.FromContext(r.Context()); token < 8 {
					t.Errorf("the handler sees token %d", token)
				}
				w.WriteHeader(http.StatusNoContent)
			})), test.values...)
			if answer.Code != test.status || !strings.Contains(answer.Body.String(), test.says) {
				t.Errorf("answer %d %q, want %d that says %q", answer.Code, answer.Body, test.status, test.says)
			}
			if served != (test.status == http.StatusNoContent) {
				t.Errorf("served: %v with status %d", served, answer.Code)
			}
		})
	}
}

func TestRequireTokenComparesNothing(t *testing.T) {
	var seen []uint64
	h := fencing.RequireToken(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		seen = append(seen, fencing.FromContext(r.Context()))
	}))
	send(h, "9")
	send(h, "7")
	if answer := send(h); answer.Code != http.StatusBadRequest {
		t.Errorf("without a token: %d, want 400", answer.Code)
	}
	if len(seen) != 2 || seen[0] != 9 || seen[1] != 7 {
		t.Errorf("the handler saw %v, want 9 and 7", seen)
	}
}
