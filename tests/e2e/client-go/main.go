// What client-go makes of an answer: the body of a list or a watch of pods comes on stdin, and the objects as
// client-go decoded them go to stdout, one JSON document a line.
//
//	client-go list|watch CONTENT-TYPE <body
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

// An API server that has one answer.
type answer struct {
	contentType string
	body        io.Reader
}

func (a answer) RoundTrip(request *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusOK,
		Header:     http.Header{"Content-Type": []string{a.contentType}},
		Body:       io.NopCloser(a.body),
		Request:    request,
	}, nil
}

func main() {
	if len(os.Args) != 3 {
		fail(fmt.Errorf("usage: client-go list|watch CONTENT-TYPE"))
	}
	server := answer{contentType: os.Args[2], body: os.Stdin}
	client, err := corev1.NewForConfigAndClient(&rest.Config{}, &http.Client{Transport: server})
	if err != nil {
		fail(err)
	}
	if os.Args[1] == "list" {
		list, err := client.Pods("").List(context.Background(), metav1.ListOptions{})
		if err != nil {
			fail(err)
		}
		show(list)
		return
	}
	watched, err := client.Pods("").Watch(context.Background(), metav1.ListOptions{})
	if err != nil {
		fail(err)
	}
	for event := range watched.ResultChan() {
		show(map[string]any{"type": event.Type, "object": event.Object})
	}
}

func show(document any) {
	if err := json.NewEncoder(os.Stdout).Encode(document); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
