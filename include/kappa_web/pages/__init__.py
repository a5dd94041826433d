"""Pages for people."""

from kappa_web.pages.routes import router

__all__ = ["router"]
