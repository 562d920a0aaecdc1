package fencing_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/podlease/podlease/pkg/fencing"
)

// A guard refuses the holder of an earlier term.
func ExampleGuard() {
	var guard fencing.Guard
	document := ""
	write := func(token uint64, text string) {
		err := guard.Do(token, func() error {
			document = text
			return nil
		})
		if err != nil {
			fmt.Println(err)
		}
	}
	write(33, "by the first holder")
	write(34, "by the second holder")
	write(33, "by the first holder, after a long pause")
	fmt.Println("written", document)
	// Output:
	// fencing token 33 is older than 34, the greatest one seen here: a newer holder has written since; stop, and ask for the leadership again before acting
	// written by the second holder
}

// Where each term has one thing to do, doing it again is refused as well.
func ExampleGuard_oncePerTerm() {
	guard := fencing.Guard{OncePerTerm: true}
	bill := func() error {
		fmt.Println("billed")
		return nil
	}
	fmt.Println(guard.Do(33, bill))
	fmt.Println(guard.Do(33, bill)) // the first answer was lost, and the holder tries again
	// Output:
	// billed
	// <nil>
	// fencing token 33 has been used, and each term may write once: look at what was written instead of writing again
}

// A service remembers what its storage had accepted, and puts the guard in front of the
// routes that write.
func ExampleGuard_Handler() {
	var guard fencing.Guard
	guard.Remember(34) // read from the storage at the start

	mux := http.NewServeMux()
	mux.Handle("PUT /jobs/{id}", guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("writing under token", fencing.FromContext(r.Context()))
		w.WriteHeader(http.StatusNoContent)
	})))
	server := httptest.NewServer(mux)
	defer server.Close()

	for _, token := range []uint64{35, 33, 0} {
		request, _ := http.NewRequest(http.MethodPut, server.URL+"/jobs/1", strings.NewReader("done"))
		if token != 0 {
			fencing.SetHeader(request.Header, token)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			fmt.Println(err)
			return
		}
		_ = response.Body.Close()
		fmt.Println(response.Status)
	}
	// Output:
	// writing under token 35
	// 204 No Content
	// 412 Precondition Failed
	// 400 Bad Request
}

// An app asks its sidecar right before it acts, and sends the token along.
func ExampleSidecar() {
	sidecar := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { // stands in for podlease-sidecar
		_, _ = io.WriteString(w, `{"role":"active","active":true,"holder":"shop/orders-1","fencingToken":1764495600123456,"term":"5d1c","validForMs":6512}`)
	}))
	defer sidecar.Close()

	leadership, err := fencing.Sidecar{URL: sidecar.URL}.Leadership(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	if !leadership.Active() {
		fmt.Println("not now:", leadership.Reason)
		return
	}
	request, _ := http.NewRequest(http.MethodPut, "http://storage/jobs/1", strings.NewReader("done"))
	fencing.SetHeader(request.Header, leadership.Token)
	fmt.Println(request.Header.Get(fencing.Header))
	// Output: 1764495600123456
}
