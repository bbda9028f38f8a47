package main

import (
	"context"
	"os"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// The label of the node whose folders hold the volumes.
const topology = "topology.hostpath.csi/node"

// least is the size of a volume for which nobody asks one.
const least = 100 << 20

func (d *driver) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	answer := &csi.ControllerGetCapabilitiesResponse{}
	for _, kind := range []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
		csi.ControllerServiceCapability_RPC_CLONE_VOLUME,
		csi.ControllerServiceCapability_RPC_EXPAND_VOLUME,
	} {
		rpc := &csi.ControllerServiceCapability_RPC{Type: kind}
		answer.Capabilities = append(answer.Capabilities,
			&csi.ControllerServiceCapability{Type: &csi.ControllerServiceCapability_Rpc{Rpc: rpc}})
	}
	return answer, nil
}

// blocks tells volumes of blocks from folders.
func blocks(capabilities ...*csi.VolumeCapability) (bool, error) {
	if len(capabilities) == 0 {
		return false, status.Error(codes.InvalidArgument, "no capability is asked for")
	}
	asked := capabilities[0].GetBlock() != nil
	for _, capability := range capabilities {
		if (capability.GetBlock() != nil) != asked || (capability.GetMount() != nil) == asked {
			return false, status.Error(codes.InvalidArgument, "a volume is a folder or blocks")
		}
	}
	return asked, nil
}

func (d *driver) CreateVolume(_ context.Context, req *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	if req.GetName() == "" {
		return nil, status.Error(codes.InvalidArgument, "a volume needs a name")
	}
	asked, err := blocks(req.GetVolumeCapabilities()...)
	if err != nil {
		return nil, err
	}
	d.kept.Lock()
	defer d.kept.Unlock()
	size := max(req.GetCapacityRange().GetRequiredBytes(), least)
	source := req.GetVolumeContentSource()
	from := source.GetSnapshot().GetSnapshotId() + source.GetVolume().GetVolumeId()
	if from != "" {
		origin, err := d.kept.find(from)
		if err != nil {
			return nil, err
		}
		if origin == nil {
			return nil, status.Errorf(codes.NotFound, "there is no %s", from)
		}
		if size < origin.Size {
			return nil, status.Errorf(codes.OutOfRange, "%s is larger than %d", from, size)
		}
		if asked != origin.Blocks {
			return nil, status.Errorf(codes.InvalidArgument, "%s is of the other kind", from)
		}
	}
	id := identified("vol", req.GetName())
	found, err := d.kept.find(id)
	switch {
	case err != nil:
		return nil, err
	case found == nil:
		found = &item{ID: id, Name: req.GetName(), Size: size, Blocks: asked, Made: time.Now()}
		if err := d.kept.make(*found, from); err != nil {
			return nil, err
		}
	case found.Size < size || found.Blocks != asked:
		return nil, status.Errorf(codes.AlreadyExists, "%s is another one", req.GetName())
	}
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{
		VolumeId: id, CapacityBytes: found.Size, VolumeContext: req.GetParameters(), ContentSource: source,
		AccessibleTopology: []*csi.Topology{{Segments: map[string]string{topology: d.node}}},
	}}, nil
}

func (d *driver) DeleteVolume(_ context.Context, req *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	d.kept.Lock()
	defer d.kept.Unlock()
	return &csi.DeleteVolumeResponse{}, d.kept.forget(req.GetVolumeId())
}

func (d *driver) ValidateVolumeCapabilities(_ context.Context, req *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	volume, err := d.there(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if asked, err := blocks(req.GetVolumeCapabilities()...); err != nil {
		return nil, err
	} else if asked != volume.Blocks {
		return &csi.ValidateVolumeCapabilitiesResponse{Message: "it is of the other kind"}, nil
	}
	confirmed := &csi.ValidateVolumeCapabilitiesResponse_Confirmed{VolumeCapabilities: req.GetVolumeCapabilities()}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: confirmed}, nil
}

func (d *driver) ControllerExpandVolume(_ context.Context, req *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	d.kept.Lock()
	defer d.kept.Unlock()
	volume, err := d.there(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	volume.Size = max(volume.Size, req.GetCapacityRange().GetRequiredBytes())
	if volume.Blocks {
		if err := os.Truncate(d.kept.data(volume.ID), volume.Size); err != nil {
			return nil, err
		}
	}
	return &csi.ControllerExpandVolumeResponse{CapacityBytes: volume.Size, NodeExpansionRequired: true}, d.kept.note(*volume)
}

func (d *driver) CreateSnapshot(_ context.Context, req *csi.CreateSnapshotRequest) (*csi.CreateSnapshotResponse, error) {
	d.kept.Lock()
	defer d.kept.Unlock()
	volume, err := d.there(req.GetSourceVolumeId())
	if err != nil {
		return nil, err
	}
	id := identified("snap", req.GetName())
	found, err := d.kept.find(id)
	switch {
	case err != nil:
		return nil, err
	case found == nil:
		found = &item{ID: id, Name: req.GetName(), Source: volume.ID, Size: volume.Size, Blocks: volume.Blocks, Made: time.Now()}
		if err := d.kept.make(*found, volume.ID); err != nil {
			return nil, err
		}
	case found.Source != volume.ID:
		return nil, status.Errorf(codes.AlreadyExists, "%s is of another volume", req.GetName())
	}
	return &csi.CreateSnapshotResponse{Snapshot: &csi.Snapshot{
		SnapshotId: id, SourceVolumeId: found.Source, SizeBytes: found.Size,
		CreationTime: timestamppb.New(found.Made), ReadyToUse: true,
	}}, nil
}

func (d *driver) DeleteSnapshot(_ context.Context, req *csi.DeleteSnapshotRequest) (*csi.DeleteSnapshotResponse, error) {
	d.kept.Lock()
	defer d.kept.Unlock()
	return &csi.DeleteSnapshotResponse{}, d.kept.forget(req.GetSnapshotId())
}

func (d *driver) there(id string) (*item, error) {
	found, err := d.kept.find(id)
	if err == nil && found == nil {
		return nil, status.Errorf(codes.NotFound, "there is no %s", id)
	}
	return found, err
}
