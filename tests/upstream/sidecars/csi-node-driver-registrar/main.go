// Stands in for the sidecar of that name, which cannot be had as a module: it tells the kubelet, when that looks into its folder of
// plugins, which driver there is and where.
package main

import (
	"context"
	"flag"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

type registrar struct {
	registration.UnimplementedRegistrationServer
	driver, endpoint string
}

func (r *registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.CSIPlugin, Name: r.driver, Endpoint: r.endpoint, SupportedVersions: []string{"1.0.0"},
	}, nil
}

func (r *registrar) NotifyRegistrationStatus(_ context.Context, told *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if !told.GetPluginRegistered() {
		// The container is started again, and so tries again.
		log.Fatalf("the kubelet does not take %s: %s", r.driver, told.GetError())
	}
	log.Printf("%s is registered", r.driver)
	return &registration.RegistrationStatusResponse{}, nil
}

func main() {
	address := flag.String("csi-address", "/csi/csi.sock", "where the driver is asked")
	endpoint := flag.String("kubelet-registration-path", "", "the same place as the kubelet has it")
	folder := flag.String("plugin-registration-path", "/registration", "where the kubelet looks")
	health := flag.String("http-endpoint", "", "where its health is asked")
	flag.Int("v", 0, "taken, not used")
	flag.Parse()
	name := named(*address)
	socket := filepath.Join(*folder, name+"-reg.sock")
	_ = os.Remove(socket)
	listener, err := net.Listen("unix", socket)
	if err != nil {
		log.Fatal(err)
	}
	if *health != "" {
		http.HandleFunc("/healthz", func(answer http.ResponseWriter, _ *http.Request) {
			if _, err := os.Stat(socket); err != nil {
				http.Error(answer, err.Error(), http.StatusInternalServerError)
			}
		})
		go func() { log.Fatal(http.ListenAndServe(*health, nil)) }()
	}
	server := grpc.NewServer()
	registration.RegisterRegistrationServer(server, &registrar{driver: name, endpoint: *endpoint})
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		<-ended
		server.Stop()
		_ = os.Remove(socket)
	}()
	if err := server.Serve(listener); err != nil {
		log.Fatal(err)
	}
}

// named asks the driver for its name until it answers.
func named(address string) string {
	connection, err := grpc.NewClient("unix://"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close()
	for {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		info, err := csi.NewIdentityClient(connection).GetPluginInfo(ctx, &csi.GetPluginInfoRequest{})
		cancel()
		if err == nil {
			return info.GetName()
		}
		log.Printf("not yet: %v", err)
		time.Sleep(time.Second)
	}
}
