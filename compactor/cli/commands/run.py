"""`compactor run`: runs the daemon in the foreground until TERM or INT."""

import os

import click

from compactor.cli.session import Command, Session, pass_session


@click.command(cls=Command)
@pass_session
def run(session: Session) -> int:
    """
    Run the daemon: Initiator, Workers, Cleaner and Housekeeper.

    Stays in the foreground. TERM and INT drain it, a second INT ends it at once, HUP reloads the settings.
    """
    settings = session.settings
    from compactor.daemon.daemon import Daemon
    from compactor.daemon.notify import ServiceManager

    return Daemon(settings, reload=session.read_settings, manager=ServiceManager.from_environment(os.environ)).run()
