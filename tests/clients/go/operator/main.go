// An operator as people write it with controller-runtime: it keeps a ConfigMap for every Boat, says in the Boat's status what
// it did, and cleans up behind a finalizer. One of several leads, by a Lease.
package main

import (
	"context"
	"fmt"
	"os"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const finalizer = "boats.example.com/harbour"

var group = schema.GroupVersion{Group: "example.com", Version: "v1"}

// Boat is the operator's own kind.
type Boat struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              struct {
		Crew int64 `json:"crew"`
	} `json:"spec"`
	Status Status `json:"status,omitempty"`
}

// Status is what the operator says of a Boat.
type Status struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Crew               int64              `json:"crew,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (b *Boat) DeepCopyObject() runtime.Object {
	copied := *b
	b.ObjectMeta.DeepCopyInto(&copied.ObjectMeta)
	copied.Status.Conditions = append([]metav1.Condition(nil), b.Status.Conditions...)
	return &copied
}

// BoatList is a list of them.
type BoatList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Boat `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (l *BoatList) DeepCopyObject() runtime.Object {
	copied := *l
	copied.Items = make([]Boat, len(l.Items))
	for i := range l.Items {
		copied.Items[i] = *l.Items[i].DeepCopyObject().(*Boat)
	}
	return &copied
}

type reconciler struct {
	client.Client
	scheme *runtime.Scheme
}

// Reconcile makes one Boat's ConfigMap be as the Boat says.
func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var boat Boat
	if err := r.Get(ctx, request.NamespacedName, &boat); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	// A note outside of the Boat's garbage: it shows that the finalizer ran.
	note := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "sunk-" + boat.Name, Namespace: boat.Namespace}}
	if !boat.DeletionTimestamp.IsZero() {
		if err := r.Create(ctx, note); err != nil && !errors.IsAlreadyExists(err) {
			return ctrl.Result{}, err
		}
		controllerutil.RemoveFinalizer(&boat, finalizer)
		return ctrl.Result{}, r.Update(ctx, &boat)
	}
	if controllerutil.AddFinalizer(&boat, finalizer) {
		return ctrl.Result{}, r.Update(ctx, &boat)
	}
	crew := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: boat.Name, Namespace: boat.Namespace}}
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, crew, func() error {
		crew.Data = map[string]string{"crew": fmt.Sprint(boat.Spec.Crew)}
		return controllerutil.SetControllerReference(&boat, crew, r.scheme)
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	before := boat.DeepCopyObject().(*Boat)
	boat.Status.ObservedGeneration, boat.Status.Crew = boat.Generation, boat.Spec.Crew
	meta.SetStatusCondition(&boat.Status.Conditions, metav1.Condition{
		Type: "Ready", Status: metav1.ConditionTrue, Reason: "Manned", Message: "all on board", ObservedGeneration: boat.Generation,
	})
	return ctrl.Result{}, r.Status().Patch(ctx, &boat, client.MergeFrom(before))
}

func main() {
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(kubeconfig, namespace string) error {
	ctrl.SetLogger(zap.New(zap.UseDevMode(true)))
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return err
	}
	scheme.AddKnownTypes(group, &Boat{}, &BoatList{})
	metav1.AddToGroupVersion(scheme, group)
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                        scheme,
		Metrics:                       server.Options{BindAddress: "0"},
		LeaderElection:                true,
		LeaderElectionID:              "boats.example.com",
		LeaderElectionNamespace:       namespace,
		LeaderElectionReleaseOnCancel: true,
	})
	if err != nil {
		return err
	}
	err = ctrl.NewControllerManagedBy(manager).For(&Boat{}).Owns(&v1.ConfigMap{}).
		Complete(&reconciler{manager.GetClient(), manager.GetScheme()})
	if err != nil {
		return err
	}
	return manager.Start(ctrl.SetupSignalHandler())
}
