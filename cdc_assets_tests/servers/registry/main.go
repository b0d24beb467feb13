// Command registry runs franz-go's own schema registry behind TLS, for tests: it listens on 127.0.0.1 only.
//
//	registry CERTIFICATE [AUTHORIZATION]
//
// The certificate of its authority is written to CERTIFICATE; the first line that it prints is its URL.
package main

import (
	"encoding/pem"
	"fmt"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"

	"github.com/twmb/franz-go/pkg/sr/srfake"
)

func main() {
	options := []srfake.Option{}
	if len(os.Args) > 2 {
		options = append(options, srfake.WithAuth(os.Args[2]))
	}
	registry := srfake.New(options...)
	behind, err := url.Parse(registry.URL())
	if err != nil {
		panic(err)
	}
	server := httptest.NewTLSServer(httputil.NewSingleHostReverseProxy(behind))
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(os.Args[1], certificate, 0o600); err != nil {
		panic(err)
	}
	fmt.Println(server.URL)
	buffer := make([]byte, 1)
	_, _ = os.Stdin.Read(buffer) // it ends with whoever started it
}
