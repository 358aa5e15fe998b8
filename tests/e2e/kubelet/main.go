// The kubelet's side of a port-forward, with the code of the kubelet. Every pod has the loopback of this machine.
//
//	kubelet LISTEN CERTIFICATE KEY
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/portforward"
)

const idle, creation = time.Minute, 30 * time.Second

type loopback struct{}

func (loopback) PortForward(_ context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	target, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return err
	}
	defer target.Close()
	go func() {
		io.Copy(target, stream)
		target.(*net.TCPConn).CloseWrite()
	}()
	_, err = io.Copy(stream, target)
	return err
}

func serve(answer http.ResponseWriter, request *http.Request) {
	options, err := portforward.NewV4Options(request)
	if err != nil {
		http.Error(answer, err.Error(), http.StatusBadRequest)
		return
	}
	portforward.ServePortForward(answer, request, loopback{}, request.PathValue("pod"), "", options, idle, creation,
		portforward.SupportedProtocols)
}

func main() {
	http.HandleFunc("/portForward/{namespace}/{pod}", serve)
	fmt.Fprintln(os.Stderr, http.ListenAndServeTLS(os.Args[1], os.Args[2], os.Args[3], nil))
	os.Exit(1)
}
