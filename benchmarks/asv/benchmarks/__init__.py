"""The timings of airspeed velocity."""
