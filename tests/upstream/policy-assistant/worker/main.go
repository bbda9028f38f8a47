// What runs in each Pod of the generated cases: all attempts that one Pod is to make, at once. Cyclonus' own worker starts
// agnhost for each of them, which costs more than everything else of a case; an attempt here is what agnhost's would be.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net"
	"sync"
	"time"

	"github.com/mattfenwick/cyclonus/pkg/worker"
	v1 "k8s.io/api/core/v1"
)

// How long an answer is waited for. Within a machine it takes milliseconds.
const patience = time.Second

// How often what has failed is tried, as by cyclonus.
const attempts = 2

func main() {
	jobs := flag.String("jobs", "", "the attempts, as cyclonus writes them")
	flag.Parse()
	var batch worker.Batch
	if err := json.Unmarshal([]byte(*jobs), &batch); err != nil {
		log.Fatalf("the attempts: %v", err)
	}
	results := make([]*worker.Result, len(batch.Requests))
	var all sync.WaitGroup
	for i, request := range batch.Requests {
		all.Go(func() { results[i] = try(request) })
	}
	all.Wait()
	text, err := json.Marshal(results)
	if err != nil {
		log.Fatalf("the results: %v", err)
	}
	fmt.Println(string(text))
}

func try(request *worker.Request) *worker.Result {
	var err error
	for range attempts {
		if err = connect(request); err == nil {
			return &worker.Result{Request: request}
		}
	}
	return &worker.Result{Request: request, Error: err.Error()}
}

// A connection that is taken, or a datagram that is answered.
func connect(request *worker.Request) error {
	switch request.Protocol {
	case v1.ProtocolTCP:
		conn, err := net.DialTimeout("tcp", request.Address(), patience)
		if err != nil {
			return err
		}
		return conn.Close()
	case v1.ProtocolUDP:
		conn, err := net.DialTimeout("udp", request.Address(), patience)
		if err != nil {
			return err
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
			return err
		}
		if _, err := conn.Write([]byte("hostname\n")); err != nil {
			return err
		}
		_, err = conn.Read(make([]byte, 1024))
		return err
	default:
		return fmt.Errorf("%s is not spoken here", request.Protocol)
	}
}
