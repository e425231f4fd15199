"""An FX graph without torch: parse the printed source, diff, lay out, draw. Only rebuild imports torch."""
