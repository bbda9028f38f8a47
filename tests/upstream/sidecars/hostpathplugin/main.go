// Stands in for a driver that cannot be had as a module: the words of its command line are those that its manifests say, and what it
// keeps is folders of one node, and files with loop devices for blocks. Volumes, snapshots, clones, growth and inline volumes, as the CSI
// specification has them.
package main

import (
	"context"
	"flag"
	"log"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

type driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedControllerServer
	csi.UnimplementedNodeServer
	name, node string
	kept       *kept
}

func main() {
	endpoint := flag.String("endpoint", "unix:///csi/csi.sock", "where it is asked")
	name := flag.String("drivername", "hostpath.csi.k8s.io", "its name")
	node := flag.String("nodeid", "", "its node")
	state := flag.String("statedir", "/csi-data-dir", "where it keeps what it is given")
	answering := flag.String("proxy-endpoint", "", "where the one who answers is met, if it is another")
	flag.Int("v", 0, "taken, not used")
	flag.Parse()
	socket := strings.TrimPrefix(*endpoint, "unix://")
	if *answering != "" {
		proxy(socket, *answering)
	}
	kept, err := open(*state)
	if err != nil {
		log.Fatal(err)
	}
	_ = os.Remove(socket)
	listener, err := net.Listen("unix", socket)
	if err != nil {
		log.Fatal(err)
	}
	d := &driver{name: *name, node: *node, kept: kept}
	server := grpc.NewServer(grpc.UnaryInterceptor(told))
	csi.RegisterIdentityServer(server, d)
	csi.RegisterControllerServer(server, d)
	csi.RegisterNodeServer(server, d)
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		<-ended
		server.GracefulStop()
	}()
	if err := server.Serve(listener); err != nil {
		log.Fatal(err)
	}
}

func told(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	answer, err := next(ctx, req)
	if !strings.HasSuffix(info.FullMethod, "Probe") {
		log.Printf("%s: %v", info.FullMethod, err)
	}
	return answer, err
}

func (d *driver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: d.name, VendorVersion: "1"}, nil
}

func (d *driver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}

func (d *driver) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	service := func(kind csi.PluginCapability_Service_Type) *csi.PluginCapability {
		return &csi.PluginCapability{Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: kind}}}
	}
	return &csi.GetPluginCapabilitiesResponse{Capabilities: []*csi.PluginCapability{
		service(csi.PluginCapability_Service_CONTROLLER_SERVICE),
		service(csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS),
	}}, nil
}
