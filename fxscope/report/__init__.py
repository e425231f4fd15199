"""Renderings of a recording: terminal, JSON, HTML, JUnit, SARIF, dot."""
