"""From host rows to tensors on the device."""
