"""The fault campaign: random gangs and random faults on a real control plane, and judges at the end."""
