// Stands in for the sidecar of that name, which cannot be had as a module: who asks it over HTTP is told whether the driver answers.
package main

import (
	"context"
	"flag"
	"log"
	"net/http"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

func main() {
	address := flag.String("csi-address", "/csi/csi.sock", "where the driver is asked")
	port := flag.String("health-port", "9808", "where it is asked itself")
	patience := flag.Duration("probe-timeout", time.Second, "how long the driver may take")
	flag.Int("v", 0, "taken, not used")
	flag.Parse()
	connection, err := grpc.NewClient("unix://"+*address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	http.HandleFunc("/healthz", func(answer http.ResponseWriter, asked *http.Request) {
		ctx, cancel := context.WithTimeout(asked.Context(), *patience)
		defer cancel()
		told, err := csi.NewIdentityClient(connection).Probe(ctx, &csi.ProbeRequest{})
		if err != nil || (told.GetReady() != nil && !told.GetReady().GetValue()) {
			http.Error(answer, "the driver is not ready", http.StatusInternalServerError)
		}
	})
	log.Fatal(http.ListenAndServe(":"+*port, nil))
}
