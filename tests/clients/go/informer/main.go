// A program as people write it with client-go: an informer over protobuf, which begins with a watch instead of a list.
//
// It follows the ConfigMaps of one namespace and prints a line for each thing that it is told. Commands come on standard
// input: `cut` takes the server away, `join` brings it back, `list` counts what the informer holds.
package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/features"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(kubeconfig, namespace string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf"
	if !features.FeatureGates().Enabled(features.WatchListClient) {
		return fmt.Errorf("WatchListClient is off")
	}
	line := newCable()
	config.Dial = line.dial
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return noted{next} })
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = "followed" }))
	informer := factory.Core().V1().ConfigMaps().Informer()
	say := func(what string, object any) {
		if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = gone.Obj
		}
		m := object.(*v1.ConfigMap)
		fmt.Printf("%s %s %s\n", what, m.Name, m.Data["n"])
	}
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { say("added", o) },
		UpdateFunc: func(_, o any) { say("changed", o) },
		DeleteFunc: func(o any) { say("deleted", o) },
	})
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	limited, done := context.WithTimeout(ctx, 20*time.Second)
	defer done()
	if !cache.WaitForCacheSync(limited.Done(), informer.HasSynced) {
		return fmt.Errorf("not synced")
	}
	fmt.Println("synced", len(informer.GetStore().List()))
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		switch input.Text() {
		case "cut":
			line.cut()
		case "join":
			line.join()
		case "list":
			names := informer.GetStore().ListKeys()
			fmt.Println("has", len(names))
		}
	}
	return nil
}

// noted prints each question about ConfigMaps with the form of its answer.
type noted struct{ next http.RoundTripper }

func (n noted) RoundTrip(request *http.Request) (*http.Response, error) {
	answer, err := n.next.RoundTrip(request)
	if err == nil && strings.HasSuffix(request.URL.Path, "/configmaps") {
		query := request.URL.Query()
		fmt.Printf("asked watch=%s sendInitialEvents=%s: %d %s\n", query.Get("watch"), query.Get("sendInitialEvents"),
			answer.StatusCode, answer.Header.Get("Content-Type"))
	}
	return answer, err
}

// cable is the way to the server, which can be cut.
type cable struct {
	down  atomic.Bool
	mutex sync.Mutex
	open  []net.Conn
}

func newCable() *cable { return &cable{} }

func (c *cable) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if c.down.Load() {
		// What a server says that is not there: then the watch is tried again from where it was.
		return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err == nil {
		c.mutex.Lock()
		c.open = append(c.open, conn)
		c.mutex.Unlock()
	}
	return conn, err
}

func (c *cable) cut() {
	c.down.Store(true)
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for _, conn := range c.open {
		conn.Close()
	}
	c.open = nil
}

func (c *cable) join() { c.down.Store(false) }
