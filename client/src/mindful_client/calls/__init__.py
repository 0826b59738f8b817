"""Every call of the client, by the name of its SQL function."""

from mindful_client.calls.adapt import *  # noqa: F403
from mindful_client.calls.calibration import *  # noqa: F403
from mindful_client.calls.chat import *  # noqa: F403
from mindful_client.calls.confidence import *  # noqa: F403
from mindful_client.calls.consolidation import *  # noqa: F403
from mindful_client.calls.document import *  # noqa: F403  # noqa: F403
from mindful_client.calls.embedding import *  # noqa: F403
from mindful_client.calls.fact import *  # noqa: F403
from mindful_client.calls.forget import *  # noqa: F403
from mindful_client.calls.job import *  # noqa: F403
from mindful_client.calls.link import *  # noqa: F403
from mindful_client.calls.llm import *  # noqa: F403
from mindful_client.calls.memory import *  # noqa: F403
from mindful_client.calls.model import *  # noqa: F403
from mindful_client.calls.review import *  # noqa: F403
from mindful_client.calls.setting import *  # noqa: F403
from mindful_client.calls.status import *  # noqa: F403
from mindful_client.calls.tool import *  # noqa: F403
from mindful_client.calls.training import *  # noqa: F403
from mindful_client.calls.transfer import *  # noqa: F403
