# KWOK deletes a pod by its name alone. On a busy machine it then deletes the next pod of a StatefulSet, which has the same name, and
# so on without an end. With this it deletes the pod that it has seen, and no other.
s|Delete(ctx, pod\.Name, deleteOpt)|Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: deleteOpt.GracePeriodSeconds, Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})|
